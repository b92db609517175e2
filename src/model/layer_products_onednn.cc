#include <ggml.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "core/aligned_buffer.h"
#include "model/layer_products.h"

namespace qevict {
namespace {

using dnnl::memory;

// Rows of one call of the library. Chunks are cut into blocks of this size whatever the number of
// threads, so that results do not depend on it.
constexpr uint32_t kBlockRows = 128;
// f32 weights that a thread holds between unpacking and laying out.
constexpr size_t kPanelFloats = size_t{1} << 18;
// The library's layouts hold outputs in blocks of up to this many.
constexpr uint32_t kOutputBlock = 64;

// oneDNN shares out its work among an OpenMP team of its own unless the calling thread's teams have
// one member.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

memory::data_type WeightType(Products products) {
  const bool bf16 = products == Products::kFastest &&
                    dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_bf16;
  return bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

struct Shape {
  uint32_t inputs = 0, outputs = 0;
  bool bias = false;
  friend auto operator<=>(const Shape&, const Shape&) = default;
};

struct Panel {
  uint32_t first = 0, outputs = 0;
  dnnl::reorder layout;
  memory::desc from, to;
};

// What is made once per shape.
struct Kernels {
  memory::desc weights;
  std::vector<Panel> panels;
  struct Product {
    dnnl::matmul matmul;
    dnnl::reorder narrow;  // rows as the graph has them to what is multiplied
    memory::desc graph_rows, x, bias, y, scratchpad;
  };
  std::map<uint32_t, Product> by_rows;
};

struct ThreadRoom {
  AlignedBuffer panel, rows, scratchpad;
};

Status EnsureBytes(AlignedBuffer& buffer, size_t bytes) {
  if (buffer.size_bytes() >= bytes) return {};
  buffer = {};
  QEVICT_ASSIGN_OR_RETURN(buffer, AlignedBuffer::Allocate(bytes));
  return {};
}

class OneDnnProducts;

class OneDnnProduct final : public RowProduct {
 public:
  OneDnnProduct(OneDnnProducts& owner, const Linear& linear, Shape shape, Kernels& kernels)
      : owner_(owner), linear_(&linear), shape_(shape), kernels_(&kernels) {}

  const Linear& linear() const { return *linear_; }
  const Shape& shape() const { return shape_; }
  Kernels& kernels() const { return *kernels_; }
  void Multiply(const float* x, float* y, uint32_t rows, size_t thread, size_t threads) override;
  void Unpack(size_t thread, size_t threads);

  AlignedBuffer weights;

 private:
  void UnpackPanel(const Panel& panel, float* to) const;

  OneDnnProducts& owner_;
  const Linear* linear_;
  Shape shape_;
  Kernels* kernels_;
};

class OneDnnProducts final : public LayerProducts {
 public:
  OneDnnProducts(memory::data_type type, uint32_t threads)
      : type_(type), engine_(dnnl::engine::kind::cpu, 0), rooms_(threads) {}

  Status Load(std::span<const Linear* const> linears) override {
    return Guarded([&]() -> Status {
      failed_.store(false);             // of a run that ended before anybody asked
      std::vector<AlignedBuffer> free;  // a layer is like the one before it
      for (OneDnnProduct& product : products_) free.push_back(std::move(product.weights));
      products_.clear();
      products_.reserve(linears.size());  // the graph points to them
      for (const Linear* linear : linears) {
        if (!*linear || (linear->blocks != nullptr && !outruns_blocks_)) continue;
        const Shape shape{uint32_t(linear->weight->ne[0]), uint32_t(linear->weight->ne[1]),
                          linear->bias != nullptr};
        Kernels& kernels = KernelsOf(shape);
        OneDnnProduct& product = products_.emplace_back(*this, *linear, shape, kernels);
        const size_t bytes = kernels.weights.get_size();
        const auto fits = std::ranges::find_if(
            free, [bytes](const AlignedBuffer& buffer) { return buffer.size_bytes() >= bytes; });
        if (fits != free.end()) {
          product.weights = std::move(*fits);
          free.erase(fits);
        } else {
          QEVICT_RETURN_IF_ERROR(EnsureBytes(product.weights, bytes));
        }
        for (ThreadRoom& room : rooms_) {
          QEVICT_RETURN_IF_ERROR(
              EnsureBytes(room.panel, PanelOutputs(shape) * shape.inputs * sizeof(float)));
        }
      }
      return {};
    });
  }

  void Unpack(size_t thread, size_t threads) override {
    for (OneDnnProduct& product : products_) product.Unpack(thread, threads);
  }

  Status PrepareRows(uint32_t rows) override {
    return Guarded([&]() -> Status {
      for (OneDnnProduct& product : products_) {
        if (rows >= kBlockRows) QEVICT_RETURN_IF_ERROR(PrepareBlock(product, kBlockRows));
        if (rows % kBlockRows != 0)
          QEVICT_RETURN_IF_ERROR(PrepareBlock(product, rows % kBlockRows));
      }
      return {};
    });
  }

  RowProduct* Find(const Linear& linear) override {
    const auto found = std::ranges::find_if(products_, [&linear](const OneDnnProduct& product) {
      return &product.linear() == &linear;
    });
    return found == products_.end() ? nullptr : &*found;
  }

  Status TakeStatus() override {
    if (!failed_.exchange(false)) return {};
    return Fail(ErrorCode::kInternal, "oneDNN failed to multiply; --products ggml does without it");
  }

  uint64_t bytes() const override {
    uint64_t bytes = 0;
    for (const OneDnnProduct& product : products_) bytes += product.weights.size_bytes();
    for (const ThreadRoom& room : rooms_) {
      bytes += room.panel.size_bytes() + room.rows.size_bytes() + room.scratchpad.size_bytes();
    }
    return bytes;
  }

  memory::data_type type() const { return type_; }
  const dnnl::engine& engine() const { return engine_; }
  ThreadRoom& room(size_t thread) { return rooms_[thread]; }

  // Of the graph's threads, which cannot return an error.
  template <typename Body>
  void OnThread(const Body& body) noexcept {
    try {
      const OneThread one;
      dnnl::stream stream(engine_);
      body(stream);
      stream.wait();
    } catch (const std::exception&) {
      failed_.store(true);
    }
  }

 private:
  template <typename Body>
  static Status Guarded(const Body& body) {
    try {
      const OneThread one;
      return body();
    } catch (const dnnl::error& error) {
      const bool memory = error.status == dnnl_out_of_memory;
      return Fail(memory ? ErrorCode::kOutOfMemory : ErrorCode::kInternal,
                  std::string("oneDNN refused a product (") + error.what() +
                      "); --products ggml does without it");
    } catch (const std::bad_alloc&) {
      return Fail(ErrorCode::kOutOfMemory,
                  "not enough memory for a layer's unpacked weights; --products ggml needs none");
    }
  }

  static uint32_t PanelOutputs(const Shape& shape) {
    const size_t fits = std::max<size_t>(kPanelFloats / shape.inputs, kOutputBlock);
    return uint32_t(fits / kOutputBlock * kOutputBlock);
  }

  dnnl::matmul::primitive_desc Describe(const Shape& shape, uint32_t rows,
                                        const memory::desc& weights) const {
    const memory::dim inputs = shape.inputs, outputs = shape.outputs;
    const memory::desc x({rows, inputs}, type_, memory::format_tag::ab);
    const memory::desc y({rows, outputs}, memory::data_type::f32, memory::format_tag::ab);
    const memory::desc bias({1, outputs}, memory::data_type::f32, memory::format_tag::ab);
    const dnnl::matmul::desc product =
        shape.bias ? dnnl::matmul::desc(x, weights, bias, y) : dnnl::matmul::desc(x, weights, y);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return {product, attributes, engine_};
  }

  Kernels& KernelsOf(const Shape& shape) {
    const auto [at, added] = shapes_.try_emplace(shape);
    Kernels& kernels = at->second;
    if (!added) return kernels;
    const memory::dim inputs = shape.inputs, outputs = shape.outputs;
    const memory::desc any({inputs, outputs}, type_, memory::format_tag::any);
    kernels.weights = Describe(shape, kBlockRows, any).weights_desc();
    const uint32_t most = PanelOutputs(shape);
    for (uint32_t first = 0; first < shape.outputs; first += most) {
      Panel panel;
      panel.first = first;
      panel.outputs = std::min(most, shape.outputs - first);
      panel.from = memory::desc({inputs, memory::dim(panel.outputs)}, memory::data_type::f32,
                                memory::format_tag::ba);
      panel.to = kernels.weights.submemory_desc({inputs, memory::dim(panel.outputs)}, {0, first});
      panel.layout =
          dnnl::reorder(dnnl::reorder::primitive_desc(engine_, panel.from, engine_, panel.to));
      kernels.panels.push_back(std::move(panel));
    }
    return kernels;
  }

  Status PrepareBlock(OneDnnProduct& product, uint32_t rows) {
    Kernels& kernels = product.kernels();
    if (!kernels.by_rows.contains(rows)) {
      const auto description = Describe(product.shape(), rows, kernels.weights);
      // Never whole blocks: those of the rows at hand are prepared before their rest.
      if (kernels.by_rows.size() >= kMostRowCounts)
        std::erase_if(kernels.by_rows, [](const auto& made) { return made.first != kBlockRows; });
      const memory::desc graph_rows({rows, product.shape().inputs}, memory::data_type::f32,
                                    memory::format_tag::ab);
      const dnnl::reorder::primitive_desc narrow(engine_, graph_rows, engine_,
                                                 description.src_desc());
      kernels.by_rows[rows] = {dnnl::matmul(description),
                               dnnl::reorder(narrow),
                               graph_rows,
                               description.src_desc(),
                               product.shape().bias ? description.bias_desc() : memory::desc(),
                               description.dst_desc(),
                               description.scratchpad_desc()};
    }
    const Kernels::Product& made = kernels.by_rows.at(rows);
    for (ThreadRoom& room : rooms_) {
      QEVICT_RETURN_IF_ERROR(EnsureBytes(room.rows, made.x.get_size()));
      QEVICT_RETURN_IF_ERROR(EnsureBytes(room.scratchpad, made.scratchpad.get_size()));
    }
    return {};
  }

  static constexpr size_t kMostRowCounts = 32;  // whole blocks, and the rests of recent prompts

  memory::data_type type_;
  // Matrix units multiply bf16 several times as fast as vector units multiply bytes.
  bool outruns_blocks_ = type_ == memory::data_type::bf16 &&
                         dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core_amx;
  dnnl::engine engine_;
  std::vector<ThreadRoom> rooms_;
  std::map<Shape, Kernels> shapes_;
  std::vector<OneDnnProduct> products_;
  std::atomic<bool> failed_{false};
};

// [outputs of the panel, inputs] in f32.
void OneDnnProduct::UnpackPanel(const Panel& panel, float* to) const {
  uint32_t begin = 0;  // of the part
  for (const StoredWeight& part : linear_->stored) {
    const uint32_t from = std::max(panel.first, begin);
    const uint32_t until = std::min(panel.first + panel.outputs, begin + part.outputs);
    if (from < until) {
      part.Unpack(from - begin, until - from, shape_.inputs, to);
      to += size_t{until - from} * shape_.inputs;
    }
    begin += part.outputs;
  }
}

void OneDnnProduct::Unpack(size_t thread, size_t threads) {
  owner_.OnThread([&](dnnl::stream& stream) {
    auto* floats = owner_.room(thread).panel.as<float>();
    for (size_t p = thread; p < kernels_->panels.size(); p += threads) {
      const Panel& panel = kernels_->panels[p];
      UnpackPanel(panel, floats);
      memory from(panel.from, owner_.engine(), floats);
      memory to(panel.to, owner_.engine(), weights.as<uint8_t>());
      panel.layout.execute(stream, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
      stream.wait();
    }
  });
}

void OneDnnProduct::Multiply(const float* x, float* y, uint32_t rows, size_t thread,
                             size_t threads) {
  owner_.OnThread([&](dnnl::stream& stream) {
    ThreadRoom& room = owner_.room(thread);
    for (uint32_t first = 0, block = 0; first < rows; first += kBlockRows, ++block) {
      if (block % threads != thread) continue;
      const uint32_t count = std::min(kBlockRows, rows - first);
      const Kernels::Product& product = kernels_->by_rows.at(count);
      // The library takes what it only reads as not const.
      void* from = const_cast<float*>(x + size_t{first} * shape_.inputs);
      void* multiplied = from;
      if (owner_.type() != memory::data_type::f32) {
        multiplied = room.rows.as<uint8_t>();
        memory wide(product.graph_rows, owner_.engine(), from);
        memory narrow(product.x, owner_.engine(), multiplied);
        product.narrow.execute(stream, {{DNNL_ARG_FROM, wide}, {DNNL_ARG_TO, narrow}});
        stream.wait();
      }
      std::unordered_map<int, memory> arguments = {
          {DNNL_ARG_SRC, memory(product.x, owner_.engine(), multiplied)},
          {DNNL_ARG_WEIGHTS, memory(kernels_->weights, owner_.engine(), weights.as<uint8_t>())},
          {DNNL_ARG_DST, memory(product.y, owner_.engine(), y + size_t{first} * shape_.outputs)},
          {DNNL_ARG_SCRATCHPAD,
           memory(product.scratchpad, owner_.engine(), room.scratchpad.as<uint8_t>())}};
      if (shape_.bias) {
        arguments.insert(
            {DNNL_ARG_BIAS, memory(product.bias, owner_.engine(), linear_->bias->data)});
      }
      product.matmul.execute(stream, arguments);
      stream.wait();
    }
  });
}

}  // namespace

std::unique_ptr<LayerProducts> LayerProducts::Create(Products products, uint32_t threads) {
  try {
    if (products == Products::kGgml) return nullptr;
    if (dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx2) return nullptr;
    return std::make_unique<OneDnnProducts>(WeightType(products), threads);
  } catch (const dnnl::error&) {
    return nullptr;
  }
}

std::string LayerProducts::Describe(Products products) {
  if (Create(products, 1) == nullptr) return "ggml";
  const dnnl_version_t* version = dnnl::version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) +
         (WeightType(products) == memory::data_type::bf16 ? ", bf16" : ", f32");
}

}  // namespace qevict

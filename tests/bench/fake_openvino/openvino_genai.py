"""As much of openvino_genai as bench/peers/openvino_peer.py uses. A prompt takes a tenth of a second per token, and decode step k
takes k seconds, so that a sum of times tells which steps are in it. What it was asked is written to $FAKE_OPENVINO_LOG, a JSON
object per line."""
import json
import os

__version__ = "1.2.3-4567-abc"


def log(entry):
    if path := os.environ.get("FAKE_OPENVINO_LOG"):
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


class SchedulerConfig:
    pass


class GenerationConfig:
    pass


class TokenizedInputs:
    def __init__(self, ids, mask):
        self.ids, self.mask = ids.data.rows[0], mask.data.rows[0]


class Fields:
    def __init__(self, **fields):
        self.__dict__.update(fields)


class LLMPipeline:
    def __init__(self, path, device, scheduler_config, **properties):
        os.write(1, b"the reader of GGUF files talks on standard output\n")
        log({"load": path, "device": device, "scheduler": vars(scheduler_config), "properties": properties})
        if error := os.environ.get("FAKE_OPENVINO_ERROR"):
            raise RuntimeError(f"Check 'data != nullptr' failed at gguf.cpp:84:\n{error}\n")

    def generate(self, inputs, config):
        log({"prompt": inputs.ids, "mask": inputs.mask, "config": vars(config)})
        count = config.max_new_tokens - int(os.environ.get("FAKE_OPENVINO_MISSING", "0"))
        first = 100.0 * len(inputs.ids)
        times = [5000.0 + first + 1000.0 * step * (step + 1) / 2 for step in range(count)]
        metrics = Fields(get_ttft=lambda: Fields(mean=first), raw_metrics=Fields(m_new_token_times=times))
        return Fields(tokens=[[inputs.ids[-1] + 1 + step for step in range(count)]], perf_metrics=metrics)

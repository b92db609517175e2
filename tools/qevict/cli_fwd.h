// CLI11's App by name: its header takes seconds to compile, and few sources need it.
#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming)
class App;
}

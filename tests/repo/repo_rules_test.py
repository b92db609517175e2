#!/usr/bin/env python3
"""Each rule of repo_rules.py catches what it forbids and leaves the rest alone."""
import os
import tempfile
import unittest

import repo_rules


class RepoRulesTest(unittest.TestCase):
    def violations_of(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return repo_rules.check_repository(root)

    def assert_caught(self, path, text, *words):
        found = self.violations_of({path: text})
        self.assertEqual(len(found), 1, found)
        for word in (path, *words):
            self.assertIn(word, found[0])

    def assert_clean(self, files):
        self.assertEqual(self.violations_of(files), [])

    def test_a_folder_includes_only_what_stands_below_it(self):
        self.assert_caught("src/core/a.cc", '#include "cache/attention.h"\n', ":1:", "src/core")
        self.assert_caught("src/cache/a.cc", '#include "model/graph.h"\n')
        self.assert_caught("src/policy/a.cc", '#include "kernels/f16.h"\n')
        self.assert_caught("src/engine/a.cc", '#include "server/http.h"\n')
        self.assert_clean({"src/engine/a.cc": '#include "cache/attention.h"\n#include "qevict/status.h"\n#include <vector>\n'})

    def test_only_the_model_folder_includes_ggml_and_llama(self):
        for header in ("ggml.h", "ggml-backend.h", "gguf.h", "llama.h"):
            self.assert_caught("src/engine/a.cc", f"#include <{header}>\n", header)
            self.assert_caught("tools/qevict/a.cc", f'#include "{header}"\n', header)
            self.assert_clean({"src/model/a.cc": f"#include <{header}>\n", "tests/engine/a_test.cc": f"#include <{header}>\n"})

    def test_public_headers_include_only_the_standard_library_expected_and_each_other(self):
        head = "#pragma once\n"
        self.assert_caught("include/qevict/a.h", head + '#include "core/isa.h"\n', ":2:")
        self.assert_caught("include/qevict/a.h", head + "#include <fmt/format.h>\n", "fmt")
        self.assert_clean({"include/qevict/a.h": head + '#include <span>\n#include <tl/expected.hpp>\n#include "qevict/ids.h"\n'})

    def test_libqevict_does_not_depend_on_fmt(self):
        self.assert_caught("src/cache/a.cc", "#include <fmt/format.h>\n", "fmt")
        self.assert_clean({"src/engine/a.cc": "#include <fmt/format.h>\n"})

    def test_project_headers_are_named_by_their_whole_path(self):
        self.assert_caught("src/core/a.cc", '#include "isa.h"\n', "by their path")

    def test_headers_have_an_include_guard(self):
        self.assert_caught("src/core/a.h", "int x();\n", "#pragma once")

    def test_a_todo_names_its_issue(self):
        self.assert_caught("src/core/a.cc", "// TODO: later\n", "TODO(#123)")
        self.assert_clean({"src/core/a.cc": "// TODO(#7): later\n"})

    def test_long_files_are_split(self):
        self.assert_caught("src/core/a.cc", "int x;\n" * 501, "501 lines")
        self.assert_clean({"src/core/a.cc": "int x;\n" * 500})

    def test_no_registry_host_and_no_path_of_one_machine(self):
        self.assert_caught("notes/a.md", "from " + "py" + "pi.org\n", "registry")
        self.assert_caught("scripts/a.sh", "cd /" + "root/x\n", "one machine")
        self.assert_clean({"scripts/a.sh": "cd $HOME/" + "root/x\n"})

    def test_file_names_say_what_they_hold(self):
        self.assert_caught("src/core/string_utils.cc", "", "named after")
        self.assert_caught("src/core/data.cc", "", "named after")
        self.assert_clean({"tools/qevict/cmd_info.cc": ""})

    def test_documents_link_to_what_exists(self):
        self.assert_caught("notes/a.md", "see [b](b.md)\n", "b.md")
        self.assert_caught("src/core/a.cc", "// docs" + "/formats/f16.md\n", "f16.md")
        self.assert_clean({"notes/a.md": "see [b](b.md#part) and [c](https://example.org)\n", "notes/b.md": "text\n"})

    def test_every_codec_has_a_format_page(self):
        self.assertEqual(len(self.violations_of({"src/codec/int2/int2.cc": ""})), 1)
        self.assert_clean({"src/codec/int2/int2.cc": "", "docs/" + "formats/int2.md": "layout\n"})


if __name__ == "__main__":
    unittest.main()

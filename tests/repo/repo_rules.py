#!/usr/bin/env python3
"""Checks the rules of the repository that no compiler checks. Prints one line per violation; exit status 1 when there is one.

    tests/repo/repo_rules.py [ROOT]
"""
import os
import re
import subprocess
import sys

# What each folder may include of the project (docs/architecture.md). A folder may always include itself.
FOLDERS = {
    "include/qevict": [],
    "src/core": [],
    "src/kernels": ["core"],
    "src/codec": ["core", "kernels"],
    "src/policy": ["core"],
    "src/cache": ["core", "kernels", "codec", "policy"],
    "src/model": ["core", "kernels", "cache"],
    "src/engine": ["core", "kernels", "codec", "policy", "cache", "model"],
    "src/eval": ["core", "kernels", "codec", "policy", "cache", "model", "engine"],
    "src/server": ["core", "kernels", "codec", "policy", "cache", "model", "engine"],
    "bench/e2e": ["core", "kernels", "codec", "policy", "cache", "model", "engine", "bench"],
    "tools": ["core", "kernels", "codec", "policy", "cache", "model", "engine", "eval", "server", "bench", "tools"],
}
# The first component of an include path: `src` is left out.
INCLUDE_FOLDERS = {folder.split("/")[1] for folder in FOLDERS if folder.startswith("src/")} | {"bench", "tools"}

# Third-party headers by their first path component, and who may include them. libqevict is used without any of them but tl,
# which its public headers need, and kernels' SIMD wrapper, which is headers only.
LIBQEVICT = ("include/qevict", "src/core", "src/kernels", "src/codec", "src/policy", "src/cache")
ENGINE = ("src/model", "src/engine", "src/eval", "src/server", "bench/e2e", "tools")
THIRD_PARTY = {
    "tl": LIBQEVICT + ENGINE,
    "hwy": ("src/kernels",),
    "fmt": ENGINE,
    "nlohmann": ENGINE,
    "CLI": ("tools",),
}
LLAMA_HEADER = re.compile(r"^(ggml(-[\w-]+)?|gguf|llama(-[\w-]+)?)\.h$")  # ours have underscores
LLAMA_FOLDERS = ("src/model/", "bench/e2e/", "tests/")  # tests compare with libllama

# Files that may be longer than 500 lines, each with its reason.
LINE_LIMIT = 500
LONG_FILES = {"LICENSE": "a licence is one text"}

BANNED_FILE_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?|misc)(_|\.)|^(info|data|process)\.")
REGISTRY_HOSTS = re.compile(r"\b(pypi|pythonhosted|npmjs|anaconda|crates|rubygems)\.(org|com|io)\b")
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(root|work|home/\w+)/\w")
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
MARKDOWN_LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
DOC_MENTION = re.compile(r"(?<![\w/])docs/[\w/-]+\.md")


def list_files(root):
    """Tracked and new files; in a tree without git every file outside build folders."""
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in (".git", ".cache", "build", "__pycache__")]
            listed += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(path for path in listed if os.path.isfile(os.path.join(root, path)))


def check_include(path, folder, bracket, header):
    """The reason why a file of `folder` may not include `header`, or None."""
    name = os.path.basename(header)
    if LLAMA_HEADER.match(name):
        return None if path.startswith(LLAMA_FOLDERS) else "ggml and libllama are included in src/model alone"
    if folder is None:  # tests and benchmarks see everything
        return None
    first = header.split("/")[0] if "/" in header else ""
    if first in THIRD_PARTY:
        return None if folder in THIRD_PARTY[first] else f"<{first}/> is not a dependency of {folder}"
    if bracket == "<":
        return None
    if first == "qevict":
        return None
    if folder == "include/qevict":
        return "a public header includes only the standard library, tl/ and qevict/"
    if first in INCLUDE_FOLDERS:
        allowed = [folder.split("/")[-1]] + FOLDERS[folder]
        return None if first in allowed else f"{folder} may include {', '.join(sorted(allowed))}"
    if folder == "src/model" and not first:
        return None  # headers of llama.cpp's common library have no folder of their own
    return 'project headers are included by their path below src or the top folder, as in "core/isa.h"'


def check_source(path, lines):
    folder = next((name for name in FOLDERS if path.startswith(name + "/")), None)
    if path.endswith(".h") and not any(line.startswith("#pragma once") for line in lines):
        yield 1, "a header begins with #pragma once"
    for number, line in enumerate(lines, 1):
        include = INCLUDE.match(line)
        if include:
            reason = check_include(path, folder, *include.groups())
            if reason:
                yield number, f"includes {include.group(2)}: {reason}"
        if "TODO" in line and not re.search(r"TODO\(#\d+\)", line):
            yield number, "write TODO(#123) with the number of an issue"


def check_markdown(root, path, lines):
    for number, line in enumerate(lines, 1):
        for target in MARKDOWN_LINK.findall(line):
            if "://" in target or target.startswith("mailto:"):
                continue
            if not os.path.exists(os.path.join(root, os.path.dirname(path), target)):
                yield number, f"links to {target}, which does not exist"


def check_text(root, path, lines):
    if len(lines) > LINE_LIMIT and path not in LONG_FILES:
        yield 1, f"{len(lines)} lines, more than {LINE_LIMIT}: split it, or give a reason in {os.path.basename(__file__)}"
    for number, line in enumerate(lines, 1):
        if REGISTRY_HOSTS.search(line):
            yield number, "names the host of a package registry; name the package and let its client find it"
        if MACHINE_PATHS.search(line):
            yield number, "names a path of one machine"
        for page in DOC_MENTION.findall(line):
            if not os.path.exists(os.path.join(root, page)):
                yield number, f"mentions {page}, which does not exist"


def check_codec_pages(root, paths):
    """Every codec has a page that gives its exact byte layout."""
    codecs = {path.split("/")[2] for path in paths if path.startswith("src/codec/") and path.count("/") > 2}
    for codec in sorted(codecs):
        if not os.path.exists(os.path.join(root, "docs/formats", codec + ".md")):
            yield f"src/codec/{codec}", f"has no page docs/formats/{codec}.md"


def check_repository(root):
    """All violations, as "path:line: what is wrong"."""
    violations = []
    paths = list_files(root)
    for path in paths:
        if path.startswith(("src/", "include/", "tools/", "tests/", "bench/")) and BANNED_FILE_NAMES.search(os.path.basename(path)):
            violations.append(f"{path}:1: a file is named after what it holds, not {os.path.basename(path)}")
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except UnicodeDecodeError:
            continue
        found = list(check_text(root, path, lines))
        if path.endswith((".h", ".cc")):
            found += check_source(path, lines)
        if path.endswith(".md"):
            found += check_markdown(root, path, lines)
        violations += [f"{path}:{number}: {what}" for number, what in found]
    violations += [f"{path}: {what}" for path, what in check_codec_pages(root, paths)]
    return violations


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../..")
    violations = check_repository(root)
    print("\n".join(violations) or "the repository keeps its rules")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env bash
# From a new Debian 12 machine to an answer about a long text: installs what is missing, builds the program, fetches
# SmolLM2-135M-Instruct (98 MB), and asks it a question about some thousand tokens of text. Running it again only asks.
#   scripts/demo.sh [TEXT_FILE [QUESTION]]
set -euo pipefail
text=$([ $# -ge 1 ] && realpath "$1" || true)
question=${2:-}
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
say() { printf '\n== %s\n' "$*" >&2; }

say "packages"
scripts/install-packages.sh
say "program"
cmake --preset release
cmake --build --preset release --target qevict
qevict=build/release/bin/qevict
say "model"
$qevict models fetch smollm2 > "$work/model"

# A novel when the evaluation data lies beside the project, else a long text that every Debian machine has.
excerpt="import json, sys; text = sys.stdin.read(); text = json.loads(text.partition('\n')[0])['text'] if sys.argv[1] == 'novel' else text
print(text[:18000])"  # about 4,500 tokens; the model was trained for 8,192
books=../shared/data/ppl/books_public_domain.jsonl
licence=/usr/share/common-licenses/GPL-3
if [ -n "$text" ]; then
  cp "$text" "$work/text"
elif [ -r "$books" ]; then
  python3 -c "$excerpt" novel < "$books" > "$work/text"
else
  [ -r "$licence" ] || licence=LICENSE
  python3 -c "$excerpt" text < "$licence" > "$work/text"
fi
question=${question:-Summarize this text in three sentences.}
say "question about $(wc -c < "$work/text") bytes of text: $question"
# A fifth of the bytes that f16 would take. A model this small repeats itself without a penalty.
$qevict run -m smollm2 -f "$work/text" -p "$question" -n 160 --temp 0 --repeat-penalty 1.1 --kv-budget 20%

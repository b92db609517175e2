#!/usr/bin/env python3
"""Asks a model for a number that stands somewhere in a long text, with the full cache and under budgets.

Each prompt is a passage of the text with one sentence put in, `The secret number of the lighthouse is 48213.`, at an even spread of depths,
and a question for that number. A row says whether the answer held the number and whether it was, character for character, the full
cache's answer (greedy decoding).

  bench/quality/needle.py -m qwen2.5-coder-1.5b --text book.txt --chars 17000 --prompts 5 --budgets 20%,10%
"""
import argparse
import json
import random
import re
import subprocess
import sys
import tempfile

PLACES = ["lighthouse", "bakery", "old mill", "harbour", "library", "clock tower", "orchard", "railway station"]


def make_prompt(text, index, options):
    rng = random.Random(f"{options.seed} {index}")
    start = rng.randrange(max(1, len(text) - options.chars))
    passage = text[start : start + options.chars]
    ends = [m.end() for m in re.finditer(r"[.!?]\s", passage)]
    if not ends:
        sys.exit("error: the text has no sentences; give another --text")
    wanted = len(passage) * (index + 0.5) / options.prompts
    at = min(ends, key=lambda end: abs(end - wanted))
    number = str(rng.randrange(10_000, 100_000))
    place = PLACES[index % len(PLACES)]
    needle = f"The secret number of the {place} is {number}. "
    question = f"What is the secret number of the {place}? Answer with the number alone."
    return passage[:at] + needle + passage[at:], question, number, at / len(passage)


def answer(options, file, question, flags):
    command = [options.qevict, "run", "-m", options.model, "-f", file, "-p", question, "-n", str(options.tokens), "--json", *flags]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"error: `{' '.join(command)}` failed: {run.stderr.strip()}")
    return json.loads(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qevict", default="build/release/bin/qevict", help="the program")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--text", required=True, help="what the number is hidden in, in UTF-8")
    parser.add_argument("--chars", type=int, default=17_000, help="characters of a prompt, about four to a token")
    parser.add_argument("--prompts", type=int, default=5)
    parser.add_argument("--budgets", default="20%,10%", help="of --kv-budget, with commas")
    parser.add_argument("--policy", default="auto")
    parser.add_argument("--tokens", type=int, default=16, help="longest answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    if options.prompts < 1 or options.chars < 100:
        parser.error("--prompts must be at least 1 and --chars at least 100")
    with open(options.text, encoding="utf-8") as file:
        text = file.read()

    rows = []
    for index in range(options.prompts):
        prompt, question, number, depth = make_prompt(text, index, options)
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
            file.write(prompt)
            file.flush()
            full = answer(options, file.name, question, ["--policy", "full"])
            variants = [("full", full)]
            for budget in options.budgets.split(","):
                flags = ["--policy", options.policy, "--kv-budget", budget]
                variants.append((budget, answer(options, file.name, question, flags)))
        for name, run in variants:
            rows.append({"prompt": index, "depth": round(depth, 2), "tokens": run["prompt_tokens"], "cache": name, "text": run["text"],
                         "found": number in run["text"], "same_as_full": run["text"] == full["text"],
                         "kv_bytes": run["kv"]["used_bytes"], "full_f16_bytes": run["kv"]["full_f16_bytes"]})
            if not options.json:
                row = rows[-1]
                print(f"prompt {index + 1}/{options.prompts}, {row['tokens']} tokens, depth {depth:.0%}, {name}: "
                      f"{'found' if row['found'] else 'NOT found'}, {'same' if row['same_as_full'] else 'NOT the same'} as full, "
                      f"{row['kv_bytes'] / row['full_f16_bytes']:.1%} of the f16 bytes: {row['text']!r}", flush=True)
    if options.json:
        json.dump({"model": options.model, "policy": options.policy, "rows": rows}, sys.stdout, indent=2)
        print()


if __name__ == "__main__":
    main()

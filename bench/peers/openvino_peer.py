#!/usr/bin/env python3
"""The peer `openvino` of `qevict bench`: OpenVINO GenAI on the same GGUF file.

It serves the requests of a worker (bench/e2e/worker.h): one JSON object per line, one reply for each. GenAI has no call that
reads a prompt or decodes tokens alone, so every request is one generate() on fresh state, and GenAI's own clock says when each
token came:

    prefill   the prompt and one token: the time to the first token
    decode    the prompt once more, then the tokens behind it: the time from one token to the next, the prompt left out

A decode step runs the token that the model has predicted, where the other engines run the text's. Speed does not depend on it.
bench/peers/setup-openvino.sh makes the environment that this runs in.
"""
import json
import os
import sys

PROTOCOL = 1  # kWorkerProtocol
SETTLE_TOKENS = 2  # kSettleTokens: decoded in front of the timed ones
LOAD_TOKENS = 64
BLOCK_TOKENS = 32  # of the CPU plugin's paged cache
BATCH_TOKENS = 2048
UNSUPPORTED, INTERNAL = 3, 9  # ErrorCode of include/qevict/status.h


class PeerError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def one_line(error):
    """GenAI's errors are several lines: the check and its place in the source, then what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def peak_rss_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


class Peer:
    def __init__(self, config):
        if config["protocol"] != PROTOCOL:
            raise PeerError(
                UNSUPPORTED, f"this peer speaks version {PROTOCOL} of the benchmark's protocol, and qevict {config['protocol']}; "
                "run bench/peers/setup-openvino.sh again")
        try:
            import openvino
            import openvino_genai
        except ImportError as error:
            raise PeerError(INTERNAL, f"{one_line(error)}; run bench/peers/setup-openvino.sh again") from error
        self.openvino, self.genai = openvino, openvino_genai
        self.version = openvino_genai.__version__.split("-")[0]  # the build follows
        self.tokens = config["tokens"]
        self.prompt_tokens = self.position = config["prompt_tokens"]
        self.batch_tokens = config["chunk"] or BATCH_TOKENS
        self.pipeline = self.load(config)
        self.generate(self.tokens[:LOAD_TOKENS], 1)

    def load(self, config):
        scheduler = self.genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = self.batch_tokens
        # Room for the longest sequence; without enough, it would start a sequence over.
        scheduler.num_kv_blocks = -(-config["capacity"] // BLOCK_TOKENS) + 2
        scheduler.enable_prefix_caching = False  # every request does all of its work
        try:
            return self.genai.LLMPipeline(config["model"], "CPU", scheduler_config=scheduler,
                                          INFERENCE_NUM_THREADS=config["threads"])
        except RuntimeError as error:
            raise PeerError(
                UNSUPPORTED, f"OpenVINO GenAI {self.version} cannot load {os.path.basename(config['model'])} "
                f"({one_line(error)}); it reads a few families (llama, qwen2, qwen3) and quantizations of GGUF alone: F16, Q4_0, "
                "Q4_1, Q8_0, Q4_K and Q6_K, but not the Q5_0 that Q4_K_M files of small models have") from error

    def generate(self, prompt, new_tokens):
        """The tokens that follow, the seconds to the first one, and the time in seconds at which each was there."""
        config = self.genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        inputs = self.genai.TokenizedInputs(self.tensor(prompt), self.tensor([1] * len(prompt)))
        result = self.pipeline.generate(inputs, config)
        tokens, metrics = list(result.tokens[0]), result.perf_metrics
        times = [time / 1000.0 for time in metrics.raw_metrics.m_new_token_times]
        if len(tokens) != new_tokens or len(times) != new_tokens:
            raise PeerError(INTERNAL, f"generate() was asked for {new_tokens} tokens and made {len(tokens)}, at {len(times)} times")
        return tokens, metrics.get_ttft().mean / 1000.0, times

    def tensor(self, values):
        tensor = self.openvino.Tensor(self.openvino.Type.i64, self.openvino.Shape([1, len(values)]))
        tensor.data[:] = [values]
        return tensor

    def prefill(self, _):
        self.position = self.prompt_tokens
        tokens, seconds, _ = self.generate(self.tokens[:self.prompt_tokens], 1)
        return {"seconds": seconds, "next": tokens[0]}

    def decode(self, request):
        count = request["tokens"]
        _, _, times = self.generate(self.tokens[:self.position], 1 + SETTLE_TOKENS + count)
        if not request["rewind"]:
            self.position += SETTLE_TOKENS + count
        return {"seconds": times[-1] - times[SETTLE_TOKENS]}

    def report(self, _):
        return {
            "peak_rss_bytes": peak_rss_bytes(),
            "kv_bytes": None,  # GenAI does not say
            "settings": f"OpenVINO GenAI {self.version}, max_num_batched_tokens {self.batch_tokens}, KV precision as the "
                        "CPU plugin chooses, no prefix caching; prefill is its time to the first token, and each decode block "
                        "reads the prompt again, untimed"}

    def serve(self, request):
        return {"prefill": self.prefill, "decode": self.decode, "report": self.report}[request["do"]](request)


def main():
    # GenAI and its readers print to standard output, which belongs to the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = None
    for line in sys.stdin:
        try:
            request = json.loads(line)
            if peer is None:
                peer = Peer(request)
                reply = {"ready": True}
            else:
                reply = peer.serve(request)
        except PeerError as error:
            reply = {"error": {"code": error.code, "message": str(error)}}
        except Exception as error:  # whatever GenAI raises ends as one sentence
            reply = {"error": {"code": INTERNAL, "message": one_line(error)}}
        print(json.dumps(reply), file=replies, flush=True)
        if peer is None:
            return


if __name__ == "__main__":
    main()

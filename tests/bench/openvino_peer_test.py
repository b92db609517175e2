#!/usr/bin/env python3
"""bench/peers/openvino_peer.py against a stand-in for OpenVINO GenAI whose times are known."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PEER = os.path.join(HERE, "../../bench/peers/openvino_peer.py")

CONFIG = {"protocol": 1, "engine": "openvino", "model": "folder/some.gguf", "threads": 3, "capacity": 100, "chunk": 0,
          "cache": {}, "tokens": list(range(1000, 1100)), "prompt_tokens": 80}


def talk(requests, path=os.path.join(HERE, "fake_openvino"), **environment):
    """The replies, and what the stand-in was asked."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log")
        run = subprocess.run([sys.executable, PEER], input="".join(json.dumps(request) + "\n" for request in requests), text=True,
                             capture_output=True, check=True,
                             env=os.environ | {"PYTHONPATH": path, "FAKE_OPENVINO_LOG": log} | environment)
        asked = []
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                asked = [json.loads(line) for line in file]
        return [json.loads(line) for line in run.stdout.splitlines()], asked


class OpenvinoPeerTest(unittest.TestCase):
    def test_prefill_is_the_time_to_the_first_token_of_the_prompt(self):
        (ready, prefill), asked = talk([CONFIG, {"do": "prefill"}])
        self.assertEqual(ready, {"ready": True})
        self.assertAlmostEqual(prefill["seconds"], 8.0)
        self.assertEqual(prefill["next"], 1080)
        self.assertEqual(asked[2]["prompt"], CONFIG["tokens"][:80])
        self.assertEqual(asked[2]["config"]["max_new_tokens"], 1)

    def test_decode_leaves_out_the_prompt_and_two_steps(self):
        (_, first, second), asked = talk([CONFIG] + 2 * [{"do": "decode", "tokens": 4, "rewind": True}])
        self.assertAlmostEqual(first["seconds"], 3 + 4 + 5 + 6)
        self.assertAlmostEqual(second["seconds"], first["seconds"])
        self.assertEqual(asked[2]["config"]["max_new_tokens"], 7)
        self.assertEqual(asked[3]["prompt"], CONFIG["tokens"][:80])

    def test_a_context_that_stays_grows_by_what_was_decoded_until_the_next_prefill(self):
        stay = {"do": "decode", "tokens": 4, "rewind": False}
        _, asked = talk([CONFIG, stay, stay, {"do": "prefill"}, stay])
        self.assertEqual([len(call["prompt"]) for call in asked[1:]], [64, 80, 86, 80, 80])

    def test_every_request_does_all_of_its_work(self):
        _, asked = talk([CONFIG, {"do": "prefill"}])
        load, call = asked[0], asked[2]
        self.assertEqual((load["load"], load["device"]), ("folder/some.gguf", "CPU"))
        self.assertEqual(load["properties"], {"INFERENCE_NUM_THREADS": 3})
        # 100 tokens are four blocks of 32.
        self.assertEqual(load["scheduler"], {"max_num_batched_tokens": 2048, "num_kv_blocks": 6, "enable_prefix_caching": False})
        self.assertEqual(call["mask"], [1] * 80)
        self.assertEqual(call["config"],
                         {"max_new_tokens": 1, "ignore_eos": True, "do_sample": False, "apply_chat_template": False})

    def test_a_chunk_is_the_batch_of_the_scheduler_and_is_reported(self):
        (_, report), asked = talk([CONFIG | {"chunk": 333}, {"do": "report"}])
        self.assertEqual(asked[0]["scheduler"]["max_num_batched_tokens"], 333)
        self.assertIn("GenAI 1.2.3, max_num_batched_tokens 333", report["settings"])
        self.assertGreater(report["peak_rss_bytes"], 1 << 20)
        self.assertIsNone(report["kv_bytes"])

    def test_a_file_that_cannot_be_read_ends_in_one_sentence(self):
        replies, _ = talk([CONFIG, {"do": "prefill"}], FAKE_OPENVINO_ERROR="[load_gguf] gguf_tensor_to_f16 failed")
        self.assertEqual(len(replies), 1)
        error = replies[0]["error"]
        self.assertEqual(error["code"], 3)
        self.assertIn("cannot load some.gguf ([load_gguf] gguf_tensor_to_f16 failed); it reads", error["message"])

    def test_fewer_tokens_than_asked_for_are_an_error(self):
        (error,), _ = talk([CONFIG], FAKE_OPENVINO_MISSING="1")
        self.assertIn("asked for 1 tokens and made 0", error["error"]["message"])

    def test_another_protocol_or_no_library_name_the_script_that_repairs_it(self):
        (error,), _ = talk([CONFIG | {"protocol": 2}])
        self.assertEqual(error["error"]["code"], 3)
        self.assertIn("setup-openvino.sh again", error["error"]["message"])
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "openvino.py"), "w", encoding="utf-8") as file:
                file.write("raise ImportError('No library here')")
            (error,), _ = talk([CONFIG], path=folder)
        self.assertIn("No library here; run bench/peers/setup-openvino.sh again", error["error"]["message"])


if __name__ == "__main__":
    unittest.main()

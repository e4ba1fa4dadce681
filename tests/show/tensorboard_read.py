"""tensorboard_read.py RUN...: reads the event files of run folders with TensorBoard's own
reader and compares every scalar with metrics.jsonl, as float32 and bit for bit. Texts and
pictures are decoded too."""

import json
import os
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.util import tensor_util

STEP = {
    "train": ["loss", "lr", "grad_norm", "voxels", "imbalance", "memory_bytes"],
    "time": ["step_s", "data_wait_s", "comm_exposed_s", "forward_s", "backward_s",
             "update_s", "plan_s"],
}
EVAL = ["loss", "accuracy", "miou", "point_miou", "point_accuracy"]


def single(x):
    return struct.pack("<f", x)


def shown(name):
    """Control characters of a name as the program writes them."""
    text = ""
    for c in name:
        if c == "\n":
            text += "\\n"
        elif c != "\t" and (ord(c) < 32 or ord(c) == 127):
            text += "\\x%02x" % ord(c)
        else:
            text += c
    return text


def expected(run):
    want = {}
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            values = []
            if line["event"] == "step":
                values = [(g + "/" + k, line[k]) for g in STEP for k in STEP[g]]
            elif line["event"] == "eval":
                values = [("eval/" + k, line[k]) for k in EVAL if k in line]
                merged = line.get("merged", {})
                values += [("merged/" + k, merged[k]) for k in EVAL if k in merged]
                for of, prefix in ((line, ""), (merged, "merged_")):
                    for group in ("iou", "point_iou"):
                        values += [(prefix + group + "/" + shown(name), x)
                                   for name, x in of.get(group, {}).items()]
            for tag, value in values:
                if value is not None:
                    want.setdefault(tag, []).append((line["step"], single(value)))
    return want


def read(run):
    everything = {kind: 0 for kind in event_accumulator.DEFAULT_SIZE_GUIDANCE}
    events = event_accumulator.EventAccumulator(
        os.path.join(run, "tensorboard"), size_guidance=everything)
    events.Reload()
    tags = events.Tags()
    scalars, texts, pictures = {}, 0, 0
    for tag in tags["scalars"]:
        scalars[tag] = [(e.step, single(e.value)) for e in events.Scalars(tag)]
    for tag in tags["tensors"]:
        kind = events.SummaryMetadata(tag).plugin_data.plugin_name
        for e in events.Tensors(tag):
            data = tensor_util.make_ndarray(e.tensor_proto)
            if kind == "scalars":
                scalars.setdefault(tag, []).append((e.step, single(float(data))))
            elif kind == "text":
                data.item().decode("utf-8")
                texts += 1
            elif kind == "images":
                assert data[2].startswith(b"\x89PNG"), tag
                pictures += 1
    for tag in tags["images"]:
        for e in events.Images(tag):
            assert e.encoded_image_string.startswith(b"\x89PNG") and e.width > 0, tag
            pictures += 1
    return scalars, texts, pictures


def main():
    for run in sys.argv[1:]:
        want, (got, texts, pictures) = expected(run), read(run)
        for tag in sorted(set(want) | set(got)):
            if want.get(tag) != got.get(tag):
                sys.exit("%s: %s: metrics.jsonl %s, TensorBoard %s"
                         % (run, tag, want.get(tag), got.get(tag)))
        if texts < 1:
            sys.exit("%s: no deck" % run)
        print("%s: %d curves, %d values equal as float32, %d pictures, %d texts"
              % (run, len(got), sum(map(len, got.values())), pictures, texts))


main()

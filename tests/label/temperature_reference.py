"""The temperature of calibrate from its definition, in float64.

temperature_reference.py SHARD PREDICTION PRINTED
    PREDICTION has the logits of an uncalibrated model on SHARD, PRINTED what calibrate printed
"""
import re
import sys

import h5py
import numpy as np

shard, prediction, printed = sys.argv[1:]
temperature, nll, nll_after, ece, ece_after = map(float, re.search(
    r"temperature=(\S+) .* nll=(\S+) -> (\S+) ece=(\S+) -> (\S+)", open(printed).read()).groups())
with h5py.File(shard) as f:
    label, known = f["labels"][()].astype(int), f["labels"][()] != f.attrs["ignore_label"]
with h5py.File(prediction) as f:
    z = f["logits"][()].astype(float)[known]
label = label[known]
z -= z.max(axis=1, keepdims=True)


def losses(t):
    p = np.exp(z / t)
    p /= p.sum(axis=1, keepdims=True)
    confidence, right = p.max(axis=1), z.argmax(axis=1) == label
    bins = np.minimum((confidence * 15).astype(int), 14)
    gap = [abs(right[bins == i].sum() - confidence[bins == i].sum()) for i in range(15)]
    return -np.log(p[np.arange(len(p)), label]).mean(), sum(gap) / len(p)


assert np.allclose(losses(1), (nll, ece), atol=2e-5), losses(1)
assert np.allclose(losses(temperature), (nll_after, ece_after), atol=2e-4), losses(temperature)
coarse = 2.0 ** (np.arange(33) / 4 - 3)


def best_of(grid):
    return min((t for t in grid if losses(t)[0] <= losses(1)[0] + 1e-12),
               key=lambda t: losses(t)[1])


fine = best_of(coarse) * 2.0 ** (np.arange(-16, 17) / 64)
least = losses(best_of(fine))[1]
assert abs(ece_after - least) < 2e-5, least
assert ece_after < 0.7 * ece and temperature != 1
likely = min(fine, key=lambda t: losses(t)[0])
print("temperature %g, by the likelihood %g with ece %.5f" % (temperature, likely, losses(likely)[1]))

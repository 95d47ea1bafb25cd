"""Prints what TensorBoard's own reader finds in a folder of event files.

    pip install tensorboard 'setuptools<81'
    python read_events.py outputs/quickstart/tb
"""

import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

a = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
a.Reload()
tags = a.Tags()
for tag in sorted(tags["scalars"]):
    points = a.Scalars(tag)
    print(f"{tag}: {len(points)} points, step {points[0].step} {points[0].value:.6g} … step {points[-1].step} {points[-1].value:.6g}")
    steps = [p.step for p in points]
    assert steps == sorted(set(steps)), f"{tag}: steps {steps}"
for tag in sorted(tags["histograms"]):
    h = a.Histograms(tag)[-1]
    print(f"{tag}: {len(a.Histograms(tag))} histograms, step {h.step}: {h.histogram_value.num:g} in {len(h.histogram_value.bucket)} buckets")

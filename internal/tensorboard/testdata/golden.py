"""Writes golden.tfevents: events by TensorBoard's own writer (pip install tensorboard)."""

import os

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

START = event_pb2.SessionLog.START
Value = summary_pb2.Summary.Value


def histogram(counts):
    n = range(len(counts))
    return summary_pb2.HistogramProto(
        min=-0.5, max=len(counts) - 0.5, num=sum(counts),
        sum=sum(i * counts[i] for i in n), sum_squares=sum(i * i * counts[i] for i in n),
        bucket_limit=[i + 0.5 for i in n], bucket=counts)


events = [
    event_pb2.Event(wall_time=1700000000.25, file_version="brain.Event:2"),
    event_pb2.Event(wall_time=1700000001.5, step=11, session_log=event_pb2.SessionLog(status=START)),
    event_pb2.Event(wall_time=1700000002.75, step=11, summary=summary_pb2.Summary(value=[
        Value(tag="loss_metrics/global_avg_loss", simple_value=2.5),
        Value(tag="grad_norm", simple_value=0),
    ])),
    event_pb2.Event(wall_time=1700000003, step=300, summary=summary_pb2.Summary(value=[
        Value(tag="loss_metrics/global_avg_loss", simple_value=float("nan")),
        Value(tag="lr", simple_value=-1e-30),
        Value(tag="expert_load/layers.0.moe", histo=histogram([3, 0, 5, 8])),
    ])),
]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.tfevents"), "wb") as f:
    w = RecordWriter(f)
    for e in events:
        w.write(e.SerializeToString())

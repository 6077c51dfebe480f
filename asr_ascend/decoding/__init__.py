"""Greedy, beam and streaming decoding of a transducer."""

from asr_ascend.decoding.greedy import Hypothesis, greedy_decode
from asr_ascend.decoding.streaming import StreamingDecoder
from asr_ascend.decoding.token_frames import token_frames

__all__ = ["Hypothesis", "StreamingDecoder", "greedy_decode", "token_frames"]

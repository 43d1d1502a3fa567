"""The timing cache, and the choice of a tactic for each node: of two, the one that chance makes faster.

The log's lines are those of NVIDIA's sample sampleEditableTimingCache.
"""

import hashlib
import json
import math
import random

from stand_in import enums
from stand_in.faults import planted, tuned

QUICK, SLOW = 0x665DED9ABBF88, 0x7A1F00C0FFEE1
_NONE = (1 << 64) - 1


class TimingCacheKey:
    def __init__(self, text):
        self._text = text

    @staticmethod
    def parse(text):
        if len(text) != 34 or not text.startswith("0x"):
            raise ValueError("a key has 32 hexadecimal digits")
        return TimingCacheKey(text)

    def __str__(self):
        return self._text


class TimingCacheValue:
    def __init__(self, arg0, arg1):
        self.tacticHash, self.timingMSec = arg0, arg1


class IHostMemory(bytearray):
    @property
    def nbytes(self):
        return len(self)

    @property
    def dtype(self):
        return enums.DataType.INT8


class ITimingCache:
    def __init__(self, data):
        text = bytes(data)
        # what no builder has written counts as that of another device
        self.entries = json.loads(text) if text[:1] == b"{" else {text.decode(): [0, 1.0]} if text else {}

    def combine(self, input_cache, ignore_mismatch):
        self.entries = {**input_cache.entries, **self.entries}
        return True

    def queryKeys(self):
        return [TimingCacheKey(text) for text in self.entries]

    def query(self, key):
        return TimingCacheValue(*self.entries.get(str(key), (_NONE, math.nan)))

    def update(self, key, value):
        if str(key) not in self.entries or planted("pin_refused"):
            return False
        if math.isnan(value.timingMSec):
            del self.entries[str(key)]
        else:
            self.entries[str(key)] = [value.tacticHash, value.timingMSec]
        return True

    def serialize(self):
        return IHostMemory(json.dumps(self.entries).encode())


def choose(network, config, logger):
    """Return the nodes that run their second tactic; None where nothing may be timed and something has to be."""
    entries = config.get_timing_cache().entries
    frozen = config.get_flag(enums.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS)
    chance = random.Random(tuned())
    for node in network.model.graph.node:
        key = "0x" + hashlib.md5(node.name.encode()).hexdigest()
        if key in entries and planted("pin_ignored"):
            entries[key] = [QUICK, 0.01]
        if key in entries and not planted("cache_miss"):
            continue
        if frozen:
            text = f"IStandIn::call: Error Code 10: Internal Error (timing cache miss for {node.name})"
            logger.log(enums.Severity.ERROR, text)
            return None
        order = chance.sample([QUICK, SLOW], 2)
        entries[key] = [order[0], 0.01]
        lines = [f"Autotuning op {node.name}(key: {key}): [ONNX Layer: {node.name}]"]
        lines += ["Sorted table of all evaluated tactics:", "tactic_id, cost(in ms), cost/fastest_cost, ..."]
        for number, tactic in enumerate(order):
            lines.append(f"   {number}, {0.01 + number / 100:.7f}, 1.0, 0.5, sm80_kernel_{tactic % 7}, {hex(tactic)},")
        lines.append(f"The selected tactic is (tactic hash, cost(in ms)):{hex(order[0])},  0.010000")
        for line in lines:
            logger.log(enums.Severity.VERBOSE, line)
    named = {node.name: "0x" + hashlib.md5(node.name.encode()).hexdigest() for node in network.model.graph.node}
    return [name for name, key in named.items() if entries[key][0] == SLOW]

"""Randomness by counting: what is drawn for a node, an edge or an entry follows from its own numbers and a key.

A generator gives its next number to whoever asks next, so that what a node gets would depend on the nodes before it.
Here it depends on nothing else, however nodes are divided among batches, threads and processes. The mixing function is
that of SplitMix64, in the 64-bit arithmetic that wraps around.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

SAMPLE, DROP, DROPOUT, LOOP, ORDER, PROBE = range(1, 7)  # what a key is for

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = 2**64
_BITS = 53  # of a draw, as many as a float64 holds


def key_of(*numbers: int) -> int:
    """One signed 64-bit key of several numbers, such as a seed, a step and a purpose."""
    state = 0
    for number in numbers:
        state = (state ^ (number % _WORD)) + _GOLDEN
        state = ((state ^ (state % _WORD >> 30)) * _FIRST) % _WORD
        state = ((state ^ (state >> 27)) * _SECOND) % _WORD
        state ^= state >> 31
    return _signed(state)


def words(key: int, *numbers: Tensor) -> Tensor:
    """64 random bits, as int64, for every combination of numbers at one place; the tensors must broadcast."""
    state = _mixed(numbers[0].long() ^ key)
    for number in numbers[1:]:
        state = _mixed(state + number.long() * _signed(_GOLDEN))
    return state


def below(key: int, share: float, *numbers: Tensor) -> Tensor:
    """Whether the draw in [0, 1) is below ``share``, bool."""
    return cast(Tensor, words(key, *numbers).bitwise_and_(2**_BITS - 1) < round(share * 2**_BITS))


def uniform(key: int, *numbers: Tensor) -> Tensor:
    """Draws in [0, 1), float64."""
    return words(key, *numbers).bitwise_and_(2**_BITS - 1).double().mul_(2.0**-_BITS)


def _mixed(state: Tensor) -> Tensor:
    state = state + _signed(_GOLDEN)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        state.bitwise_xor_(_shifted(state, shift)).mul_(_signed(factor))
    return state.bitwise_xor_(_shifted(state, 31))


def _shifted(state: Tensor, bits: int) -> Tensor:
    """To the right, with zeros moving in; torch's own shift repeats the sign."""
    return torch.bitwise_right_shift(state, bits).bitwise_and_(2 ** (64 - bits) - 1)


def _signed(number: int) -> int:
    number %= _WORD
    return number - _WORD if number >= _WORD // 2 else number

"""Types of the C++ extension; see transforms/kernels/."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]

FIRST_MERGED: int
END_OF_WORD: int

class WordCounter:
    def __init__(self, threads: int = 1) -> None: ...
    def add_lines(self, source: pa.Array, target: pa.Array) -> None: ...
    def add_counts(self, words: pa.Array, source_counts: Int64, target_counts: Int64) -> None: ...
    @property
    def memory(self) -> int: ...
    def take(self, parts: int = 1) -> tuple[Int64, UInt8, Int64, Int64, Int64]: ...

def sorted_rows(strings: pa.Array) -> Int64: ...
def base_symbols(
    words: pa.Array, counts: Int64, bytes: bool = False
) -> tuple[Int32, Int64, Int64]: ...
def apply_merges(
    symbols: Int32, offsets: Int64, counts: Int64, left: Int32, right: Int32, threads: int = 1
) -> tuple[Int32, Int64, Int64]: ...
def count_pairs(
    symbols: Int32, offsets: Int64, counts: Int64, threads: int = 1, parts: int = 1
) -> tuple[Int32, Int32, Int64, Int64]: ...
def sum_pairs(left: Int32, right: Int32, counts: Int64) -> tuple[Int32, Int32, Int64, Int64]: ...
def cut_chunks(
    symbols: Int32,
    offsets: Int64,
    counts: Int64,
    active_left: Int32,
    active_right: Int32,
    threads: int = 1,
    parts: int = 1,
) -> tuple[Int32, Int64, Int64, Int64]: ...
def sum_chunks(
    symbols: Int32, offsets: Int64, counts: Int64
) -> tuple[Int32, Int64, Int64, Int64]: ...
def learn_merges(
    symbols: Int32,
    offsets: Int64,
    counts: Int64,
    left: Int32,
    right: Int32,
    limit: int,
    threshold: int,
) -> tuple[Int32, Int32, Int64]: ...

class PieceTable:
    def __init__(
        self,
        ids: Int32,
        left: Int32,
        right: Int32,
        sizes: Int32,
        byte_ids: Int32,
        unknown: int,
    ) -> None: ...

class Segmenter:
    def __init__(
        self,
        left: Int32,
        right: Int32,
        result: Int32,
        symbols: int,
        bytes: bool = False,
        cache_bytes: int = ...,
        glossary: Callable[[str], list[tuple[str, int]] | None] | None = None,
        inner: Int32 = ...,
    ) -> None: ...
    def segment(
        self, lines: pa.Array, ids: Int32, threads: int = 1, pieces: PieceTable | None = None
    ) -> tuple[Int32, Int64, Int64]: ...
    def draw(
        self,
        ids: Int32,
        offsets: Int64,
        rows: Int64,
        spelling: Int32,
        spelling_offsets: Int64,
        pieces: PieceTable,
        probability: float,
        seed: int,
        threads: int = 1,
    ) -> tuple[Int32, Int64]: ...

def check_pieces(
    ids: Int32,
    offsets: Int64,
    words: Int64,
    lines: pa.Array,
    measures: Int64,
    ends_word: int,
    unknown: int,
    raw: bool = False,
    threads: int = 1,
) -> tuple[int, int, UInt8]: ...

class Renderer:
    def __init__(
        self,
        left: Int32,
        right: Int32,
        result: Int32,
        sizes: Int32,
        split_left: Int32,
        split_right: Int32,
        in_vocabulary: UInt8,
        separator: str,
        end_symbol: bool,
        glossary: Callable[[str], list[tuple[str, bool]] | None] | None,
        cache_bytes: int = ...,
    ) -> None: ...
    def render(
        self,
        text: bytes,
        first_line: int = 0,
        threads: int = 1,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> list[bytes]: ...
    def render_words(self, words: pa.Array) -> tuple[Int64, UInt8]: ...

class TextCounter:
    def __init__(self) -> None: ...
    def add(self, text: bytes, first_line: int = 0, threads: int = 1) -> None: ...
    def words(self) -> tuple[Int64, UInt8, Int64]: ...

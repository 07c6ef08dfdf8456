"""Aligning words, adding links, and what the dictionary keeps of them."""

import collections
import itertools
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import oracles
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rareword.schemas.errors import RarewordError
from rareword.schemas.tables import CORPUS, DICTIONARY
from rareword.transforms import alignment
from rareword.transforms.alignment import LINKS, MAX_WORDS, Aligner, Blocks, Pruning
from rareword.transforms.segmenters import split_words

MODELS = ("eflomal", "fast-align")
Links = collections.Counter[tuple[str, str]]


def lines(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.string())


def as_counter(links: pa.Table) -> Links:
    assert links.schema == LINKS
    rows = list(zip(*links.to_pydict().values(), strict=True))
    found: Links = collections.Counter()
    for source, target, count in rows:
        found[source, target] += count
    return found


def as_table(links: Sequence[tuple[str, str, int]]) -> pa.Table:
    return pa.table([list(column) for column in zip(*links, strict=True)] or [[]] * 3, schema=LINKS)


def corpus(pairs: Sequence[tuple[str, str]], ids: Sequence[int] | None = None) -> pa.Table:
    columns = [list(ids or range(len(pairs))), [s for s, _ in pairs], [t for _, t in pairs]]
    return pa.table(columns, schema=CORPUS.fields)


def made_pairs(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences of words s0 .. s9 and their translations t0 .. t9, neighbours changing places."""
    rng = random.Random(seed)
    pairs = []
    for _ in range(number):
        words = [rng.randrange(10) for _ in range(rng.randint(2, 6))]
        order = list(range(len(words)))
        at = rng.randrange(len(words))
        order[at - 1], order[at] = order[at], order[at - 1]
        pairs.append(
            (" ".join(f"s{w}" for w in words), " ".join(f"t{words[place]}" for place in order))
        )
    return pairs


def table_of(model: str, pairs: Sequence[tuple[str, str]], **options) -> pa.Table:
    return Aligner(model, **options).count_links(
        lines([s for s, _ in pairs]), lines([t for _, t in pairs])
    )


# ---- text ----


@given(st.lists(st.none() | st.text("ab é\u00a0", max_size=9), max_size=9), st.integers(0, 9))
def test_words_are_split_as_everywhere(texts: list[str | None], start: int) -> None:
    for text_type in (pa.string(), pa.large_string()):
        words, sizes = split_words(pa.array(texts, text_type).slice(start))
        bounds = np.cumsum([0, *sizes])
        found = [words[a:b].to_pylist() for a, b in itertools.pairwise(bounds)]
        assert found == [oracles.split_words(text or "") for text in texts[start:]]


# ---- blocks ----


def test_a_block_is_a_function_of_the_id() -> None:
    blocks = Blocks.plan(9_000, 1_000, 3_000)
    assert blocks.of(np.empty(0, np.int64)).size == 0
    ids = np.random.default_rng(1).integers(0, 2**62, 500)
    together = blocks.of(ids)
    assert [int(blocks.of(np.array([i]))[0]) for i in ids] == together.tolist()


@pytest.mark.parametrize("ids", [np.arange(100_000), np.arange(100_000) << 40])
def test_blocks_and_samples_have_about_the_size_asked_for(ids: np.ndarray) -> None:
    everything = Blocks.plan(len(ids), 20_000)
    assert everything.count == 5
    sizes = np.bincount(everything.of(ids), minlength=5)
    assert sizes.sum() == len(ids)
    assert np.abs(sizes - 20_000).max() < 5 * 20_000**0.5
    sampled = Blocks.plan(len(ids), 20_000, 30_000)
    assert sampled.count == 2
    blocks = sampled.of(ids)
    sizes = np.bincount(blocks[blocks >= 0], minlength=2)
    assert np.abs(sizes - 15_000).max() < 5 * 15_000**0.5
    assert set(np.unique(blocks)) == {-1, 0, 1}


def test_small_and_empty_corpora_have_one_block() -> None:
    assert Blocks.plan(0, 10) == Blocks(1, 1.0)
    assert Blocks.plan(10, 10, 20) == Blocks(1, 1.0)
    assert Blocks.plan(11, 10).count == 2


def test_a_larger_sample_holds_the_smaller_one() -> None:
    ids = np.arange(5_000)
    small, large = (Blocks.plan(5_000, 10_000, sample).of(ids) >= 0 for sample in (500, 2_000))
    assert 0 < small.sum() < large.sum()
    assert not (small & ~large).any()


def test_pairs_that_cannot_be_aligned_are_counted() -> None:
    long = " ".join(["w"] * (MAX_WORDS + 1))
    pairs = [("a", "b"), ("", "b"), ("a", " "), (long, "b"), ("a", long), (long[2:], "b"), ("", "")]
    tables = list(alignment.split_pairs(corpus(pairs), Blocks(3)))
    figures = [table for key, table in tables if key == 3]
    assert [table.to_pydict() for table in figures] == [
        {
            "source": ["left_out", "empty", "too_long"],
            "target": [""] * 3,
            "links": [0, 3, 2],
        }
    ]
    kept = [row for key, table in tables if key < 3 for row in table["id"].to_pylist()]
    assert sorted(kept) == [0, 5]


def test_the_limit_is_the_library_s() -> None:
    library = alignment.aligner_library()
    assert library.EflomalAlignmentModel().max_sentence_length == MAX_WORDS
    assert library.FastAlignModel().max_sentence_length == MAX_WORDS


def test_a_pair_of_the_greatest_length_is_aligned_and_a_longer_one_is_not() -> None:
    for words, aligned in ((MAX_WORDS, True), (MAX_WORDS + 1, False)):
        long = " ".join(f"w{i}" for i in range(words))
        links = as_counter(table_of("fast-align", [(long, long), ("w1", "w1"), ("w2", "w2")]))
        assert links["w1", "w1"] == links["w2", "w2"] == 1 + aligned


# ---- the library ----


@pytest.mark.parametrize("name", ["thot.alignment", "threadpoolctl"])
def test_a_missing_library_is_a_sentence_with_the_command(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RarewordError, match=r"pip install 'rareword\[align\]'"):
        alignment.aligner_library()


LEARN_IN_A_THREAD = """
import os, threading
import {first}, pyarrow
from rareword.transforms.alignment import Aligner, aligner_library
aligner_library()
text = pyarrow.array(["a b c", "b c a"] * 40, pyarrow.large_string())
def learn():
    for model in ("eflomal", "fast-align"):
        Aligner(model).count_links(text, text)
    print(before, len(os.listdir("/proc/self/task")))
before = len(os.listdir("/proc/self/task"))
thread = threading.Thread(target=learn)
thread.start()
thread.join()
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux does")
@pytest.mark.parametrize("first", ["torch", "thot.alignment"])
def test_models_are_learnt_by_one_thread_whichever_runtime_came_first(first: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEARN_IN_A_THREAD.format(first=first)],
        env=os.environ | {"OMP_NUM_THREADS": "6"},
        check=True,
        capture_output=True,
        text=True,
    )
    before, within = map(int, done.stdout.split())
    assert within == before + 1


# ---- aligning ----


def ibm_model_1(pairs: Sequence[tuple[str, str]], iterations: int = 50) -> dict[str, dict]:
    """t(target | source) by EM, without the null word (Brown et al. 1993)."""
    split = [(s.split(), t.split()) for s, t in pairs]
    table: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for sources, targets in split:
        for s in sources:
            table[s].update(dict.fromkeys(targets, 1.0))
    for _ in range(iterations):
        counts: dict[str, dict[str, float]] = {
            s: dict.fromkeys(row, 0.0) for s, row in table.items()
        }
        for sources, targets in split:
            for t in targets:
                whole = sum(table[s][t] for s in sources)
                for s in sources:
                    counts[s][t] += table[s][t] / whole
        table = {s: {t: n / sum(row.values()) for t, n in row.items()} for s, row in counts.items()}
    return table


AMBIGUOUS = [("s0 u{k}", "t0 v{k}"), ("s1 u{k}", "t0 v{k}"), ("s1 u{k}", "t1 v{k}")]
"""s0 is t0 always, s1 either of two, so p(t0 | s0) is 1 and p(s0 | t0) is a half."""


@pytest.mark.parametrize("model", MODELS)
def test_probabilities_are_of_the_target_given_the_source(model: str) -> None:
    pairs = [
        (s.format(k=k), t.format(k=k)) for k in range(8) for s, t in AMBIGUOUS for _ in range(4)
    ]
    expected = ibm_model_1(pairs)
    assert expected["s0"]["t0"] == pytest.approx(1.0, abs=1e-2)
    assert expected["s1"]["t0"] == pytest.approx(0.5, abs=1e-2)
    assert ibm_model_1([(t, s) for s, t in pairs])["t0"]["s0"] == pytest.approx(0.5, abs=1e-2)
    rows = Pruning().dictionary(table_of(model, pairs)).to_pylist()
    found = {(row["source"], row["target"]): row["probability"] for row in rows}
    for source, translations in expected.items():
        for target, probability in translations.items():
            assert found.get((source, target), 0.0) == pytest.approx(probability, abs=0.15)


@pytest.mark.parametrize("model", MODELS)
def test_symmetrised_alignments_lie_inside_each_other(model: str) -> None:
    pairs = made_pairs(60)
    pairs += [(s, f"{t} e e") for s, t in pairs]  # words that nothing translates
    one, two, three, four = (
        as_counter(table_of(model, pairs, symmetrisation=name))
        for name in ("intersection", "grow-diag", "grow-diag-final-and", "union")
    )
    assert not one - two
    assert not two - three
    assert not three - four
    assert one != four, "the heuristic has an effect"


@pytest.mark.parametrize("model", MODELS)
def test_aligning_again_links_the_same_words(model: str) -> None:
    pairs = made_pairs(40)
    assert table_of(model, pairs) == table_of(model, pairs)


def test_the_seed_has_an_effect() -> None:
    pairs = [(s, f"{t} {t}") for s, t in made_pairs(30)]
    found = [as_counter(table_of("eflomal", pairs, seed=seed)) for seed in range(4)]
    assert any(links != found[0] for links in found)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("word", ["NULL", "UNKNOWN_WORD", "<UNUSED_WORD>", "|||", "0", "s\u00a09"])
def test_words_with_a_meaning_elsewhere_are_words(model: str, word: str) -> None:
    def renamed(text: str, old: str) -> str:
        return " ".join(word if w == old else w for w in text.split(" "))

    pairs = made_pairs(40)
    plain = as_counter(table_of(model, pairs))
    found = table_of(model, [(renamed(s, "s3"), renamed(t, "t4")) for s, t in pairs])
    assert as_counter(found) == {
        (renamed(s, "s3"), renamed(t, "t4")): n for (s, t), n in plain.items()
    }


@pytest.mark.parametrize("model", MODELS)
def test_a_block_does_not_depend_on_the_order_in_which_it_comes(model: str) -> None:
    pairs = made_pairs(40)
    table = corpus(pairs, [id * 7 for id in range(40)])
    shuffled = table.take(pa.array(np.random.default_rng(3).permutation(40)))

    def aligned(tables: list[pa.Table]) -> list[tuple[int, dict]]:
        parts = alignment.align_block((0, iter(tables)), Blocks(1), Aligner(model), shards=3)
        return [(key, part.to_pydict()) for key, part in parts]

    assert aligned([table]) == aligned([shuffled.slice(9), shuffled.slice(0, 9)])
    key, figures = aligned([table])[0]
    assert key == 3
    assert figures["source"] == ["aligned", "links"]
    assert figures["links"] == [40, sum(as_counter(table_of(model, pairs)).values())]


# ---- links ----

word = st.sampled_from(["a", "b", "é", "日", "A"])
link_rows = st.lists(st.tuples(word, word, st.integers(1, 4)), max_size=30)


def summed(rows: Sequence[tuple[str, str, int]]) -> Links:
    found: Links = collections.Counter()
    for source, target, count in rows:
        found[source, target] += count
    return found


def pieces(rows: list, size: int) -> Iterator[list]:
    yield from (rows[i : i + size] for i in range(0, len(rows), size))


@given(link_rows, st.integers(1, 7), st.integers(1, 5))
def test_links_add_up_by_shard(rows: list, size: int, shards: int) -> None:
    parts = collections.defaultdict(list)
    for piece in pieces(rows, size):
        for key, table in alignment.split_links(as_table(piece), shards):
            assert 0 <= key < shards
            parts[key].append(table)
    sums = [alignment.sum_links(tables) for tables in parts.values()]
    assert sum(map(as_counter, sums), collections.Counter()) == summed(rows)
    assert all(len(as_counter(table)) == table.num_rows for table in sums)
    words = [word for table in sums for word in set(table["source"].to_pylist())]
    assert len(words) == len(set(words)), "a source word lies in one shard only"


# ---- what is kept ----


@given(link_rows, st.integers(0, 4), st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]))
@settings(max_examples=200)
def test_the_dictionary_keeps_the_most_probable(rows: list, keep: int, least: float) -> None:
    links = summed(rows)
    expected = []
    for source in sorted({s for s, _ in links}, key=str.encode):
        row = [(-n, t.encode(), t) for (s, t), n in links.items() if s == source]
        whole = -sum(n for n, _, _ in row)
        best = sorted(row)[: keep or None]
        expected += [(source, t, -n / whole, -n) for n, _, t in best if -n / whole >= least]
    shuffled = random.Random(1).sample(sorted(links.items()), len(links))
    table = as_table([(s, t, n) for (s, t), n in shuffled])
    found = Pruning(keep, least).dictionary(table)
    assert found.schema.equals(DICTIONARY.fields)
    assert [tuple(row.values()) for row in found.to_pylist()] == expected


def test_probabilities_of_a_word_add_up_to_one() -> None:
    rng = random.Random(5)
    links = summed(
        [(f"s{rng.randrange(9)}", f"t{rng.randrange(50)}", rng.randint(1, 9)) for _ in range(400)]
    )
    found = Pruning(keep=0).dictionary(as_table([(s, t, n) for (s, t), n in links.items()]))
    sums: collections.Counter[str] = collections.Counter()
    for row in found.to_pylist():
        sums[row["source"]] += row["probability"]
    assert sums.keys() == {s for s, _ in links}
    assert list(sums.values()) == pytest.approx([1.0] * len(sums))

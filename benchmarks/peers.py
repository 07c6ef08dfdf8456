"""One contestant of a benchmark, in a process of its own.

    python peers.py TASK

The first line of the standard input is a JSON object, the arguments of the task. The task prepares
itself and `{"ready": true}` comes back; then each further line of input makes it do its work once,
and the answer is a line of JSON: CPU seconds (user and system, of this process and its children),
wall seconds, the peak of resident memory and, the first time, a digest of the result. What goes
wrong comes back as `{"error": ...}`.

This module needs the standard library only; a task imports its own library. rareword's tasks
are in ours.py and use the same loop.
"""

import collections
import hashlib
import io
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

BATCH = 1000
"""Lines given to a tokenizer at once."""


class Repeat(NamedTuple):
    """One repeat of a task: what is timed, and what the result is known by (not timed)."""

    work: Callable[[], Any]
    digest: Callable[[Any], dict[str, Any]]


Task = Callable[..., Iterator[Repeat]]
"""Arguments -> repeats without end; what a repeat does before its `yield` is not timed."""


# ---- the loop ----


def cpu_seconds() -> float:
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def peak_bytes() -> int:
    """The most memory this process has had resident. (ru_maxrss would begin with its parent's.)"""
    with open("/proc/self/status", encoding="ascii") as stream:
        return next(int(line.split()[1]) << 10 for line in stream if line.startswith("VmHWM:"))


def serve(tasks: Mapping[str, Task], name: str) -> None:
    """Answers on the standard output; what libraries print goes to the error output."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)

        def reply(**values: Any) -> None:
            print(json.dumps(values), file=replies, flush=True)

        try:
            repeats = tasks[name](**json.loads(sys.stdin.readline()))
            repeat = next(repeats)
            reply(ready=True)
            for number, _ in enumerate(sys.stdin):
                if number:
                    repeat = next(repeats)
                cpu, wall = cpu_seconds(), time.perf_counter()
                result = repeat.work()
                cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
                peak = peak_bytes()
                reply(cpu=cpu, wall=wall, peak=peak, digest={} if number else repeat.digest(result))
                del result
        except Exception as error:
            reply(error=f"{type(error).__name__}: {error}")
            raise


# ---- the text, and what results are known by ----


def read_lines(path: str) -> list[str]:
    with open(path, encoding="utf-8", newline="\n") as stream:
        return stream.read().split("\n")[:-1]


def batches(lines: list[str]) -> Iterator[list[str]]:
    return (lines[start : start + BATCH] for start in range(0, len(lines), BATCH))


def counts_digest(counts: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Of words with their counts, in any order."""
    found = sorted((word, count) for word, count in counts if word)
    text = "".join(f"{word} {count}\n" for word, count in found)
    return {"types": len(found), "sha256": text_digest(text)}


def text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- count words ----


def counter_words(text: str) -> Iterator[Repeat]:
    lines = read_lines(text)
    while True:
        yield Repeat(
            lambda: collections.Counter(word for line in lines for word in line.split()),
            lambda counts: counts_digest(counts.items()),
        )


def pyarrow_words(text: str, split: str) -> Iterator[Repeat]:
    """split: the name of a function of pyarrow.compute."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = pa.array(read_lines(text), pa.string())
    arguments = (" ",) if split == "split_pattern" else ()
    while True:
        yield Repeat(
            lambda: pc.value_counts(getattr(pc, split)(lines, *arguments).flatten()),
            lambda counts: counts_digest(
                zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)
            ),
        )


def polars_words(text: str) -> Iterator[Repeat]:
    import polars

    lines = polars.Series("word", read_lines(text))
    while True:
        yield Repeat(
            lambda: lines.str.split(" ").explode().value_counts(),
            lambda counts: counts_digest(counts.iter_rows()),
        )


# ---- count and learn ----


def alphabet(text: str) -> tuple[int, int]:
    """How many characters a text has, and how many that end a word; for vocabulary sizes."""
    words = {word for line in read_lines(text) for word in line.split(" ")}
    return len(set().union(*words)), len({word[-1] for word in words if word})


def tokenizers_train(text: str, merges: int, model: str) -> Iterator[Repeat]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    size = sum(alphabet(text)) + merges

    def work() -> Any:
        tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.BpeTrainer(
            vocab_size=size, min_frequency=2, end_of_word_suffix="</w>", show_progress=False
        )
        tokenizer.train([text], trainer)
        return tokenizer

    def digest(tokenizer: Any) -> dict[str, Any]:
        tokenizer.save(model)
        return {"merges": len(json.loads(tokenizer.to_str())["model"]["merges"])}

    while True:
        yield Repeat(work, digest)


def sentencepiece_train(text: str, merges: int, model: str) -> Iterator[Repeat]:
    import sentencepiece

    size = alphabet(text)[0] + 4 + merges  # the mark of a word's start; <unk>, <s>, </s>

    def work() -> Any:
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=model, model_type="bpe", vocab_size=size, num_threads=1,
            character_coverage=1.0, normalization_rule_name="identity", max_sentence_length=1 << 20,
            minloglevel=1,
        )  # fmt: skip

    def digest(_: Any) -> dict[str, Any]:
        found = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
        return {"pieces": found.get_piece_size()}

    while True:
        yield Repeat(work, digest)


def youtokentome_train(text: str, merges: int, model: str) -> Iterator[Repeat]:
    import youtokentome

    size = alphabet(text)[0] + 5 + merges  # the mark of a word's start; <PAD>, <UNK>, <BOS>, <EOS>

    def work() -> Any:
        return youtokentome.BPE.train(data=text, model=model, vocab_size=size, n_threads=1)

    while True:
        yield Repeat(work, lambda bpe: {"pieces": bpe.vocab_size()})


# ---- learn from a word table ----


def subword_nmt_learn(words: str, merges: int) -> Iterator[Repeat]:
    """words: a file of lines `word count`."""
    from subword_nmt.learn_bpe import learn_bpe

    with open(words, encoding="utf-8") as stream:
        dictionary = stream.read()

    def work() -> str:
        codes = io.StringIO()
        learn_bpe(io.StringIO(dictionary), codes, merges, is_dict=True)
        return codes.getvalue()

    while True:
        yield Repeat(work, lambda codes: {"codes": text_digest(codes)})


# ---- segment ----


def tokenizers_encode(text: str, model: str) -> Iterator[Repeat]:
    from tokenizers import Tokenizer

    lines = read_lines(text)
    while True:
        tokenizer = Tokenizer.from_file(model)  # with an empty cache

        def work(tokenizer: Any = tokenizer) -> int:
            return sum(
                len(line)
                for batch in batches(lines)
                for line in tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            )

        yield Repeat(work, _pieces)


def sentencepiece_encode(text: str, model: str) -> Iterator[Repeat]:
    import sentencepiece

    lines = read_lines(text)
    bpe = sentencepiece.SentencePieceProcessor(model_file=f"{model}.model")
    while True:
        yield Repeat(
            lambda: sum(
                len(line)
                for batch in batches(lines)
                for line in bpe.encode(batch, out_type=int, num_threads=1)
            ),
            _pieces,
        )


def youtokentome_encode(text: str, model: str) -> Iterator[Repeat]:
    import youtokentome

    lines = read_lines(text)
    bpe = youtokentome.BPE(model, n_threads=1)
    ids = youtokentome.OutputType.ID
    while True:
        yield Repeat(
            lambda: sum(
                len(line) for batch in batches(lines) for line in bpe.encode(batch, output_type=ids)
            ),
            _pieces,
        )


def fastbpe_apply(text: str, codes: str) -> Iterator[Repeat]:
    import fastBPE

    lines = read_lines(text)
    with open(codes, encoding="utf-8") as stream:
        merges = stream.read().split("\n")[1:-1]
    with open(f"{codes}.fastbpe", "w", encoding="utf-8") as out:
        out.writelines(f"{merge} 1\n" for merge in merges)
    while True:
        bpe = fastBPE.fastBPE(f"{codes}.fastbpe")

        def work(bpe: Any = bpe) -> list[str]:
            return [line for batch in batches(lines) for line in bpe.apply(batch)]

        yield Repeat(work, lines_digest)


def subword_nmt_apply(text: str, codes: str) -> Iterator[Repeat]:
    from subword_nmt.apply_bpe import BPE

    lines = read_lines(text)
    while True:
        with open(codes, encoding="utf-8") as stream:
            bpe = BPE(stream)

        def work(bpe: Any = bpe) -> list[str]:
            return [bpe.process_line(line) for line in lines]

        yield Repeat(work, lines_digest)


def lines_digest(lines: list[str]) -> dict[str, Any]:
    """Of lines of pieces as subword-nmt prints them."""
    return {
        "pieces": sum(len(line.split()) for line in lines),
        "sha256": text_digest("\n".join(lines)),
    }


def _pieces(number: int) -> dict[str, Any]:
    return {"pieces": number}


TASKS: dict[str, Task] = {
    task.__name__: task
    for task in (
        counter_words,
        pyarrow_words,
        polars_words,
        tokenizers_train,
        sentencepiece_train,
        youtokentome_train,
        subword_nmt_learn,
        tokenizers_encode,
        sentencepiece_encode,
        youtokentome_encode,
        fastbpe_apply,
        subword_nmt_apply,
    )
}

if __name__ == "__main__":
    serve(TASKS, sys.argv[1])

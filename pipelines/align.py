"""`rareword align`: corpus -> dictionary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rareword.pipelines import job
from rareword.schemas import dictionary
from rareword.schemas import manifest as manifests
from rareword.schemas.manifest import Plan
from rareword.schemas.options import JobOptions, option, shaping
from rareword.schemas.tables import DICTIONARY, ShardRecord


@dataclass(frozen=True)
class AlignOptions(JobOptions):
    corpus: str = option(
        help="directory that `prepare` wrote from the training text", shapes_result=False
    )
    model: Literal["eflomal", "fast-align"] = option(
        "eflomal",
        help="alignment model: HMM with fertilities, by sampling, or IBM model 2 near the diagonal",
    )
    symmetrisation: Literal["grow-diag-final-and", "grow-diag", "intersection", "union"] = option(
        "grow-diag-final-and", help="how the alignments of both directions become one"
    )
    seed: int = option(1, help="of the samplers of eflomal", at_least=0, at_most=2**32 - 1)
    block_pairs: int = option(
        1_000_000,
        help="sentence pairs, about, that one worker aligns together; counts of blocks are added",
        at_least=1,
    )
    sample_pairs: int | None = option(
        None,
        help="sentence pairs, about, that are aligned, chosen by their ids; default: all",
        at_least=1,
    )
    keep: int = option(
        100, help="translations of a word that are kept, the most probable; 0: all", at_least=0
    )
    min_probability: float = option(
        0.0, help="translations of a lower probability are dropped", at_least=0.0, at_most=1.0
    )
    shards: int = option(8, help="output files; words are spread by a stable hash", at_least=1)


def plan(options: AlignOptions) -> Plan:
    from rareword.transforms.alignment import aligner_library

    corpus = manifests.read(options.corpus, "prepare", "--corpus")
    aligner_library()
    return Plan(JOB.name, shaping(options), {"corpus": corpus.content})


def build(pipeline: Any, options: AlignOptions, plan: Plan) -> None:
    import apache_beam as beam

    from rareword.transforms.alignment import Aligner, AlignWords, Blocks, Pruning
    from rareword.transforms.elements import Finish

    corpus = manifests.read(options.corpus, "prepare", "--corpus")
    pairs = corpus.rows

    def write(found: list[ShardRecord]) -> None:
        (pair_figures,) = (record.counters for record in found if not record.name)
        records = [record for record in found if record.name]
        totals = {name: sum(r.counters[name] for r in records) for name in records[0].counters}
        kinds = ("aligned", "left_out", "empty", "too_long")
        figures = {f"{kind}_pairs": pair_figures.get(kind, 0) for kind in kinds}
        manifests.check_balance(
            {
                "pairs of the corpus and pairs aligned or not": (pairs, sum(figures.values())),
                "links of the blocks and of the dictionary": (
                    pair_figures.get("links", 0),
                    totals["links"],
                ),
            }
        )
        manifests.finish(
            plan,
            options.output,
            DICTIONARY,
            records,
            figures={**figures, **totals},
            rules=corpus.rules,
            packages=("apache-beam", "pyarrow", "sil-thot"),
        )

    (
        pipeline
        | "Shards" >> beam.Create(corpus.urls)
        | "AlignWords"
        >> AlignWords(
            options.output,
            options.shards,
            Blocks.plan(pairs, options.block_pairs, options.sample_pairs),
            Aligner(options.model, options.symmetrisation, options.seed),
            Pruning(options.keep, options.min_probability),
        )
        | "Finish" >> Finish(write)
    )


def _progress(options: JobOptions) -> str:
    found = job.count_files(options)
    return "aligning" if found == "reading" else found


JOB = job.Job(
    name=dictionary.JOB,
    description="Aligns the words of a corpus and writes their translations with probabilities.",
    options=AlignOptions,
    plan=plan,
    work=job.beam_work(build),
    progress=_progress,
)


def run(argv: Sequence[str]) -> int:
    return job.run(JOB, argv)

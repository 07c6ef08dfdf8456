"""What a training run is told: typed options for the command line, and the model's sizes.

Imports no torch, so that `rareword train --help` stays fast.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, Self

from rareword.schemas.errors import RarewordError
from rareword.schemas.options import option

FREEZABLE = {
    "source-embedding": ("source_embedding",),
    "target-embedding": ("target_embedding",),
    "output": ("output.weight", "output.bias"),
}
"""Names for --freeze, and the parameters that each stands for."""

PAPER: Mapping[str, Any] = {
    "gru": "groundhog",
    "tied": "none",
    "embedding_bias": True,
    "initialisation": "paper",
    "dropout": 0.0,
    "label_smoothing": 0.0,
    "optimiser": "adadelta",
    "halve_after": 0,
    "loss_scale": "sum",
    "batch": 80,
    "batch_unit": "sentences",
    "max_length": 50,
    "max_epochs": 1000,
    "patience": 20,
    "checkpoint_minutes": 720.0,
    "keep": 4,
    "precision": "float32",
}
"""Sennrich et al. 2016 as their code (GroundHog) trains: the defaults where they differ."""


@dataclass(frozen=True)
class TrainConfig:
    """How to train. Each field is an option of `rareword train`."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"modern": {}, "paper": PAPER}

    preset: Literal["modern", "paper"] = option(
        "modern",
        help="defaults of the other options: paper trains as Sennrich et al. 2016 did, modern as "
        "one would train the same architecture today",
        shapes_result=False,
    )

    embedding: int = option(
        620, help="size of the word embeddings", at_least=1, heading="the model"
    )
    hidden: int = option(
        1000, help="size of the decoder's state and of the attention; even", at_least=2
    )
    encoder_hidden: int = option(
        1000, help="size of the encoder's state in each of its two directions", at_least=1
    )
    encoder_layers: int = option(
        1, help="layers of the encoder, each in both directions", at_least=1
    )
    decoder_layers: int = option(
        1, help="layers of the decoder; attention belongs to the first", at_least=1
    )
    gru: Literal["cudnn", "groundhog"] = option(
        "cudnn",
        help="where the reset gate of a GRU stands: cudnn, behind the product with the state "
        "(faster), or groundhog, before it (the paper)",
    )
    layer_norm: bool = option(
        False, help="normalise what enters the GRUs, the annotations and the readout"
    )
    tied: Literal["auto", "all", "target", "none"] = option(
        "auto",
        help="embeddings that are one matrix: all (source, target and output; needs a joint "
        "vocabulary), target (target and output), none; auto: all if joint, else target",
    )
    embedding_bias: bool = option(False, help="learn a vector that is added to every embedding")
    initialisation: Literal["glorot", "paper"] = option(
        "glorot",
        help="first values of the matrices beside the recurrent, orthogonal ones: glorot, or "
        "paper: normal with deviation 0.01, 0.001 in the attention, whose last vector is 0",
    )
    dropout: float = option(
        0.3, help="share of embeddings, annotations and outputs zeroed", at_least=0, at_most=0.95
    )
    label_smoothing: float = option(
        0.1, help="share of the probability spread over all pieces", at_least=0, at_most=0.9
    )

    optimiser: Literal["adam", "adadelta"] = option(
        "adam", help="adam, or adadelta with rho 0.95 and eps 1e-6", heading="the optimiser"
    )
    learning_rate: float | None = option(
        None, help="initial learning rate (default: 0.001 for adam, 1 for adadelta)", at_least=0
    )
    warmup: int = option(
        0, help="updates in which the learning rate rises to its full height", at_least=0
    )
    schedule: Literal["plateau", "linear", "cosine", "inverse-sqrt"] = option(
        "plateau",
        help="how the learning rate falls: plateau, by --halve-after; linear or cosine, to 0 at "
        "--max-epochs or --max-steps; inverse-sqrt, with the square root of the updates after "
        "--warmup",
    )
    halve_after: int = option(
        1,
        help="with --schedule plateau: validations without improvement, one after the other, "
        "before the learning rate is halved; 0: never",
        at_least=0,
    )
    clip: float = option(
        1.0, help="largest norm of the gradient of all parameters; 0: no limit", at_least=0
    )
    loss_scale: Literal["mean", "sum"] = option(
        "mean",
        help="what the gradient is of: the batch's mean loss a target token, or its sum, which "
        "makes --clip the length of nearly every step (the paper)",
    )
    freeze: tuple[str, ...] = option(
        (),
        help="parameters that are not updated (their gradients still count in the norm): "
        "source-embedding, target-embedding, output",
    )
    init_from: str | None = option(
        None,
        help="model directory to take the first parameters from; pieces of another vocabulary "
        "keep their embeddings where both have them",
        shapes_result=False,
    )
    init_checkpoint: str = option(
        "best", help="checkpoint of --init-from: best, latest or a name such as step-00001200"
    )

    batch: int = option(
        4096, help="size of a batch over all processes, in units", at_least=1, heading="the data"
    )
    batch_unit: Literal["tokens", "sentences"] = option(
        "tokens",
        help="unit of the batch: sentences, or tokens (longest side times pairs, padding counted)",
    )
    accumulate: int = option(
        1,
        help="parts of a batch that each process takes one after the other, to save memory",
        shapes_result=False,
        at_least=1,
    )
    max_length: int = option(
        100, help="pieces; pairs with a longer side are counted and skipped", at_least=1
    )
    shuffle_pairs: int = option(
        1_000_000,
        help="pairs in memory at once, among which the order of an epoch is drawn",
        at_least=1,
    )
    bpe_dropout: float = option(
        0.0,
        help="BPE-dropout: probability that a place where a merge fits is passed over; the "
        "training data is segmented anew each epoch (0.1 is usual; 0: off)",
        at_least=0,
        at_most=1,
    )
    bpe_dropout_side: Literal["both", "source", "target"] = option(
        "both", help="the side whose pieces --bpe-dropout draws anew"
    )
    seed: int = option(1, help="seed of parameters, data order and dropout", at_least=0)

    max_epochs: int = option(
        30,
        help="passes over the data, at most",
        at_least=1,
        heading="when to validate, save and stop",
    )
    max_steps: int | None = option(None, help="updates, at most", at_least=1)
    validate_every: int | None = option(
        None, help="updates between validations (default: at the end of each epoch)", at_least=1
    )
    monitor: Literal["loss", "bleu"] = option(
        "loss", help="figure of the development data that says which checkpoint is best"
    )
    patience: int = option(
        5,
        help="validations without improvement, one after the other, that end training; 0: never",
        at_least=0,
    )
    bleu_pairs: int = option(
        1000,
        help="pairs of the development data to translate for BLEU; 0: none",
        at_least=0,
    )
    bleu_beam: int = option(1, help="beam for validation BLEU; 1: greedy", at_least=1)
    samples: int = option(
        3,
        help="translations of development sentences to show at each validation",
        shapes_result=False,
        at_least=0,
    )
    checkpoint_every: int = option(
        1000, help="updates between checkpoints; each validation writes one too", at_least=1
    )
    checkpoint_minutes: float = option(
        30.0,
        help="minutes between checkpoints, if --checkpoint-every does not come before; 0: never",
        shapes_result=False,
        at_least=0,
    )
    keep: int = option(3, help="latest checkpoints to keep, beside the best one", at_least=1)
    finish: bool = option(
        False,
        help="train no further: finish the directory of a stopped run with the checkpoints it has",
        shapes_result=False,
    )

    precision: Literal["auto", "float32", "tf32", "bf16"] = option(
        "auto",
        heading="the machine",
        help="precision of matrix products (parameters, softmax and loss stay float32); auto: "
        "bf16 where the machine is faster with it, else float32",
    )
    device: Literal["auto", "cpu", "cuda"] = option(
        "auto", help="where to train; auto: cuda where there is one", shapes_result=False
    )
    cuda_graphs: Literal["auto", "on", "off"] = option(
        "auto",
        help="record a step on the GPU once for each shape of batch and replay it; auto: on cuda",
        shapes_result=False,
    )
    threads: int = option(
        0, help="CPU threads of each process; 0: share all cores", shapes_result=False, at_least=0
    )
    log_every: int = option(
        50, help="updates between progress lines", shapes_result=False, at_least=1
    )
    tensorboard: bool = option(
        False,
        help="write the figures of training.jsonl for TensorBoard too, into tensorboard/",
        shapes_result=False,
    )

    @classmethod
    def of(cls, preset: str, **values: Any) -> Self:
        """A preset's options, with some changed."""
        return cls(**{"preset": preset, **cls.PRESETS[preset], **values})

    @property
    def initial_rate(self) -> float:
        """The learning rate to begin with."""
        usual = 1e-3 if self.optimiser == "adam" else 1.0
        return usual if self.learning_rate is None else self.learning_rate

    def check(self) -> None:
        """Refuses contradictions between options: RarewordError."""
        if self.hidden % 2:
            raise RarewordError(f"--hidden: {self.hidden} is odd; maxout needs an even size")
        if self.batch_unit == "tokens" and self.batch <= self.max_length:
            raise RarewordError(
                f"--batch: {self.batch} tokens cannot hold a pair of --max-length "
                f"{self.max_length} with its end of sentence; raise one or lower the other"
            )
        if self.schedule == "inverse-sqrt" and not self.warmup:
            raise RarewordError("--schedule inverse-sqrt needs --warmup above 0")
        if self.schedule != "plateau" and self.halve_after > 1:
            raise RarewordError(
                f"--halve-after {self.halve_after} belongs to --schedule plateau, not to "
                f"{self.schedule}; leave one of them out"
            )
        if self.bpe_dropout_side != "both" and not self.bpe_dropout:
            raise RarewordError("--bpe-dropout-side needs --bpe-dropout above 0")
        for name in self.freeze:
            if name not in FREEZABLE:
                raise RarewordError(
                    f"--freeze: {name!r} is none of the groups {', '.join(FREEZABLE)}"
                )
        if self.monitor == "bleu" and not self.bleu_pairs:
            raise RarewordError("--monitor bleu needs --bleu-pairs above 0")


@dataclass(frozen=True)
class ModelConfig:
    """The form and sizes of a model: all that is needed to build it again."""

    source_vocabulary: int
    target_vocabulary: int
    embedding: int
    hidden: int
    encoder_hidden: int
    tied: Literal["all", "target", "none"] = "none"
    dropout: float = 0.0
    encoder_layers: int = 1
    decoder_layers: int = 1
    gru: Literal["cudnn", "groundhog"] = "cudnn"
    layer_norm: bool = False
    embedding_bias: bool = False
    initialisation: Literal["glorot", "paper"] = "glorot"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def model_config(
    config: TrainConfig, source_vocabulary: int, target_vocabulary: int, joint: bool
) -> ModelConfig:
    """The model's form, given the numbers of pieces; `joint`: both sides share one vocabulary.

    Raises RarewordError if `--tied all` meets two vocabularies.
    """
    if config.tied == "all" and not joint:
        raise RarewordError(
            "--tied all needs a joint vocabulary, but source and target have different ones; "
            "use --tied target, or segment with a joint segmenter"
        )
    tied = ("all" if joint else "target") if config.tied == "auto" else config.tied
    same = {
        field.name: getattr(config, field.name)
        for field in fields(ModelConfig)
        if hasattr(config, field.name)
    }
    return ModelConfig(
        **{
            **same,
            "source_vocabulary": source_vocabulary,
            "target_vocabulary": target_vocabulary,
            "tied": tied,
        }
    )

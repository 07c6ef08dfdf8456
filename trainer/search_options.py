"""How to search for translations: typed options for the command line. Imports no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rareword.schemas.errors import RarewordError
from rareword.schemas.options import option


@dataclass(frozen=True)
class SearchOptions:
    """How to search. Each field is an option of `rareword decode`."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "modern": {},
        "paper": {"beam": 12, "min_length_ratio": 0.5},
    }

    preset: Literal["modern", "paper"] = option(
        "modern",
        help="defaults of the search: paper searches as Sennrich et al. 2016 did",
        shapes_result=False,
        heading="search",
    )
    search: Literal["beam", "sample", "forced"] = option(
        "beam",
        help="beam: prune hypotheses; sample: draw each piece at random; forced: the data's own "
        "target side, with the model's scores",
    )
    beam: int = option(5, help="hypotheses kept per sentence; 1 is greedy search", at_least=1)
    n_best: int = option(
        1,
        help="hypotheses written per sentence, at most --beam, or how many are drawn; the best has "
        "rank 0",
        at_least=1,
    )
    length_form: Literal["power", "gnmt", "reward"] = option(
        "power",
        help="score of a log-probability L and a length n: power, L / n^p; gnmt, "
        "L / ((5 + n) / 6)^p; reward, L + p n",
    )
    length_penalty: float = option(
        1.0, help="the number p of --length-form; 0 for plain log-probabilities", at_least=0
    )
    min_length: int = option(0, help="shortest output, in pieces", at_least=0)
    min_length_ratio: float = option(
        0.0, help="shortest output, in lengths of its source in pieces", at_least=0
    )
    max_length: int | None = option(
        None, help="longest output, in pieces; left out: --max-length-ratio alone", at_least=1
    )
    max_length_ratio: float = option(
        3.0, help="longest output, in lengths of its source in pieces", at_least=1
    )
    forbid_unk: bool = option(False, help="never generate <unk>")
    temperature: float = option(
        1.0, help="of sample: below 1 likely pieces become likelier", at_least=0.01
    )
    top_k: int = option(
        0, help="of sample: draw from so many most probable pieces; 0 for all", at_least=0
    )
    top_p: float = option(
        1.0,
        help="of sample: draw from the fewest pieces that have so much probability together",
        at_least=0.0001,
        at_most=1,
    )
    search_seed: int = option(1, help="of sample", at_least=0)
    alignments: bool = option(
        False, help="write the attention weights too; `evaluate` shows them as heat maps"
    )
    batch_tokens: int = option(
        2048,
        help="source pieces, padding included, that the device searches at once",
        shapes_result=False,
        at_least=1,
    )

    @property
    def width(self) -> int:
        """Hypotheses of a sentence at once."""
        return self.n_best if self.search == "sample" else self.beam

    def check(self) -> None:
        """Refuses contradictions between options: RarewordError."""
        if self.search == "beam" and self.n_best > self.beam:
            raise RarewordError(
                f"--n-best: {self.n_best} is more than --beam {self.beam}; raise the beam"
            )
        if self.search == "forced" and self.n_best > 1:
            raise RarewordError("--n-best: --search forced gives one output a sentence, the data's")
        if self.search != "sample":
            for name in ("temperature", "top_k", "top_p"):
                if getattr(self, name) != SearchOptions.__dataclass_fields__[name].default:
                    flag = "--" + name.replace("_", "-")
                    raise RarewordError(f"{flag} needs --search sample")
        if self.min_length_ratio >= self.max_length_ratio:
            raise RarewordError(
                f"--min-length-ratio: {self.min_length_ratio} is not below --max-length-ratio "
                f"{self.max_length_ratio}"
            )
        if self.max_length is not None and self.min_length > self.max_length:
            raise RarewordError(
                f"--min-length: {self.min_length} is more than --max-length {self.max_length}"
            )


def length_limits(source_length: int, options: SearchOptions) -> tuple[int, int]:
    """The fewest and the most pieces that an output may have, end-of-sentence included.

    source_length: pieces, without end-of-sentence; the ratios count it. Where the two contradict,
    the most wins.
    """
    most = max(2, math.floor(options.max_length_ratio * (source_length + 1)))
    if options.max_length is not None:
        most = min(most, options.max_length + 1)
    fewest = max(options.min_length, math.floor(options.min_length_ratio * (source_length + 1)))
    return min(fewest + 1, most), most


def normalised(log_probability: Any, length: Any, options: SearchOptions) -> Any:
    """The scores by which hypotheses are compared, of numbers or of tensors.

    length: with end-of-sentence, n below. With L the log-probability (natural logarithm) and p the
    penalty: power L / n^p; gnmt L / ((5 + n) / 6)^p (Wu et al. 2016); reward L + p n.
    """
    if options.length_form == "reward":
        return log_probability + options.length_penalty * length
    if options.length_form == "gnmt":
        length = (5 + length) / 6
    return log_probability / length**options.length_penalty

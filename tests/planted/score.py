"""The score of planted faults: the first causes of a run, compared with the planted ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ddpcheck.running.failure_causes import identity_of
from ddpcheck.running.failure_groups import group_failures
from ddpcheck.verdict import Verdict
from ddpcheck_implementations.faulty import Registered, faults


@dataclass(frozen=True)
class Combination:
    """Faults that were planted together: their names, their causes, and the failed verdicts.

    causes: those that the faults were registered with when the combination ran. told: the headlines by the rules of that
    time.
    """

    seed: int
    names: tuple[str, ...]
    causes: tuple[str, ...]
    failed: tuple[Verdict, ...]
    seconds: float
    told: tuple[str, ...] = ()

    @staticmethod
    def new(seed: int, faults: Sequence[Registered], failed: tuple[Verdict, ...], seconds: float) -> Combination:
        """A combination that has just run."""
        names, causes = tuple(each.name for each in faults), tuple(each.cause for each in faults)
        return Combination(seed, names, causes, failed, seconds, _headlines(failed))

    @property
    def headlines(self) -> tuple[str, ...]:
        """The ids of the causes in the run's order, by the present rules."""
        return _headlines(self.failed)

    @property
    def causes_now(self) -> tuple[str, ...]:
        """The causes that the faults are registered with."""
        return tuple(_registered().get(name, cause) for name, cause in zip(self.names, self.causes, strict=True))

    @property
    def right(self) -> bool:
        """Whether the first headlines, one per fault, are the planted causes, by the present rules."""
        return _are_first(self.causes_now, self.headlines)

    @property
    def alone(self) -> bool:
        """Whether there are no other headlines."""
        return self.right and len(self.headlines) == len(self.causes)

    @property
    def right_when_new(self) -> bool:
        return _are_first(self.causes, self.told)

    @property
    def alone_when_new(self) -> bool:
        return self.right_when_new and len(self.told) == len(self.causes)

    @property
    def shown(self) -> bool:
        """Whether some failure names each planted cause. Otherwise one fault hides another, as a hang hides later
        failures.
        """
        named = {cause.id for verdict in self.failed if verdict.diagnosis for cause in verdict.diagnosis.causes}
        return named.issuperset(self.causes_now)

    def line(self) -> str:
        mark = "=" if self.alone else "+" if self.right else "-"
        return f"{mark} {self.seconds:5.1f} s {' '.join(self.causes)} | {' '.join(self.headlines[:8])}"

    def to_plain(self) -> dict[str, Any]:
        """JSON."""
        failed = [{**each.to_plain(), "subject": each.diagnosis and each.diagnosis.subject} for each in self.failed]
        return {**vars(self), "failed": failed}

    @staticmethod
    def from_plain(data: Mapping[str, Any]) -> Combination:
        """Inverse of to_plain."""
        failed = tuple(map(_verdict, data["failed"]))
        named = tuple(data["names"]), tuple(data["causes"])
        return Combination(data["seed"], *named, failed, data["seconds"], tuple(data["told"]))


def _are_first(causes: tuple[str, ...], headlines: tuple[str, ...]) -> bool:
    return set(headlines[: len(causes)]) == set(causes)


@cache
def _registered() -> Mapping[str, str]:
    return {fault.name: fault.cause for fault in faults()}


def _headlines(failed: tuple[Verdict, ...]) -> tuple[str, ...]:
    """The ids of the causes in the run's order; a failure without a known cause is "?"."""
    return tuple("".join(identity_of(group.first)[:1]) or "?" for group in group_failures(failed))


def _verdict(data: Mapping[str, Any]) -> Verdict:
    """A verdict with the subject of its diagnosis, which result files omit."""
    subject = data["subject"]
    made = Verdict.from_plain({name: value for name, value in data.items() if name != "subject"})
    if subject is None or made.diagnosis is None:
        return made
    return replace(made, diagnosis=replace(made.diagnosis, subject=(subject[0], subject[1])))


HEAD = """\
# Planted faults

Does a run tell the causes first, if there are several? Registered faults are planted together, drawn by seed. A single fault
is any that is registered with a cause. Pairs and triples are replicas with faults of different modules, none of which leaves out
the calls of another. The quick profile judges each combination. A combination is right if the first headlines, one for each
fault, are the planted causes. It is right and alone if there is no other headline.

    python tests/planted/run.py planted.jsonl{seeds}
    python tests/planted/run.py tests/planted/results.jsonl{seeds} --page reports/planted-faults.md

| faults | combinations | told first when new | and no other headline | share | told first now | every cause is named somewhere |
| --- | --- | --- | --- | --- | --- | --- |
"""


def page(ones: Sequence[Combination], seeds: Sequence[int]) -> str:
    """The report in markdown."""
    rows, tables = [], []
    for together in sorted({len(one.causes) for one in ones}):
        these = [one for one in ones if len(one.causes) == together]
        right, alone = sum(one.right_when_new for one in these), sum(one.alone_when_new for one in these)
        now, shown = sum(one.right for one in these), sum(one.shown for one in these)
        share = alone if together == 1 else right
        counts = together, len(these), right, alone, f"{100 * share / len(these):.0f} %", now, shown
        rows.append(f"| {' | '.join(map(str, counts))} |")
        tables += [f"## Planted: {together}", "", "| planted | told when new | right |", "| --- | --- | --- |"]
        tables += [_row(one) for one in these]
        tables.append("")
    options = "".join(f" --seed {seed}" for seed in seeds)
    return HEAD.format(seeds=options) + "\n".join([*rows, "", *_SHARES, "", *tables]).rstrip() + "\n"


_SHARES = (
    "The share counts singles that are told alone, and pairs and triples that are told first. Where a fault hides another,",
    "no failure names the second cause, and no ranking can: the last column counts the combinations without such a case.",
    "",
    "These draws follow from their seeds, and the rules of each draw were committed before any of its combinations was judged.",
    "The share is that of these rules; `now` is by the present rules, some of which were added after the draws. The failures are",
    "in `tests/planted/results.jsonl`.",
    "",
    "## Earlier draws",
    "",
    "Rules were added after the misses of these draws had been seen. Their failures were judged again by the present rules.",
    "Where a rule changes the causes of a failure, the pair ran again.",
    "",
    "| seed | faults | combinations | told first when the draw was new | told first by the present rules |",
    "| --- | --- | --- | --- | --- |",
    "| 2026 | 2 | 20 | 14 | 14; not judged again by the rules since 2718 |",
    "| 4711 | 2 | 20 | 13 of the 18 that had run | 17 |",
    "| 6174 | 2 | 12 | 10 | 11 |",
    "| 2718 | 2 | 12 | 7 | 10; the quick profile does not reach a fault of the other two |",
    "| 9001 | 2 | 8 | 2 | 5 |",
    "| 9002 | 2 | 16 | 9 | 11 |",
    "| 9002 | 3 | 8 | 1 | 2; two others are not drawn any more: a fault leaves out another's calls |",
    "| 9003 | 2 | 10 | 8 | 10 |",
    "| 9004 | 3 | 6 | 3 | 6 |",
    "| 9005 | 2 | 10 | 6 | 10 |",
    "| 9006 | 1 | 4 | 3 alone | 4 alone |",
    "| 9006 | 2 | 10 | 7 | 10 |",
    "| 9006 | 3 | 3 | 3 | 3 |",
    "| 9007 | 1 | 4 | 3 alone | 4 alone |",
    "| 9007 | 2 | 10 | 7 | 10 |",
    "| 9007 | 3 | 3 | 1 | 2 |",
    "| 9008 | 2 | 8 | 5 | 7 |",
    "| 9009 | 1 | 10 | 9 alone | 10 alone |",
    "| 9009 | 2 | 10 | 7 | 10 |",
    "| 9009 | 3 | 3 | 2 | 3 |",
    "| 9010 | 1 | 10 | 6 alone | 10 alone |",
    "| 9010 | 2 | 10 | 7 | 8 |",
    "| 9010 | 3 | 4 | 2 | 2 |",
    "| 9011 | 1 | 10 | 8 alone | 9 alone |",
    "| 9011 | 2 | 10 | 6 | 8 |",
    "| 9011 | 3 | 4 | 1 | 1 |",
    "| 9012 | 1 | 10 | 5 alone | 9 alone |",
    "| 9012 | 2 | 10 | 8 | 8 |",
    "| 9012 | 3 | 4 | 2 | 2 |",
    "| 9021, 9022 | 1 | 20 | 17 alone | 19 alone |",
    "| 9021, 9022 | 2 | 8 | 7 | 7 |",
    "| 9021 to 9023 | 3 | 12 | 6 | 6 |",
    "| 9031, 9032 | 1 | 22 | 17 alone | 21 alone |",
    "| 9031, 9032 | 2 | 18 | 15 | 17 |",
    "| 9031, 9032 | 3 | 44 | 27 | 31 |",
    "",
    "## Rules",
    "",
    "Rules that were added after the draws up to 2718:",
    "",
    "- A gradient that is not reduced names a rank without samples as a possible cause. Only a new run shows this.",
    "- Two failures in one parameter have one cause only if it explains more checks than the description of the value.",
    "- A possible cause that all failures name explains those that only describe values. An old gradient that is sent",
    "  again, and a gradient that was not reset, are one cause: the larger group leads.",
    "- The gradient of an earlier backward explains its update and its NaN.",
    "",
    "Rules that were added after the draws of 9001, 4711 and 9002:",
    "",
    "- A loss that is wrong only in the report does not end the judgement of its Job. A loss of zero, or NaN, may be the",
    "  mean of all losses.",
    "- The loss shows in how many bits ids and labels are stored, so that this is no guess any more.",
    "- A guess that is the known cause of another failure is kept.",
    "- A cause that one check alone shows holds in special circumstances. It explains no guess about other checks.",
    "- An error does not explain the mechanism that leads to it, even if more checks show the error.",
    "- Another piece and another parameter that a rank sends are one cause: the larger group leads. Eight more consequences",
    "  are in the table of implied causes, such as an update that is zero because weight decay is missing.",
    "- Gradients that are only rounding do not show that other gradients are right.",
    "",
    "One fault of the draw of 9001 was registered with a cause that its check did not name first; now it has the first.",
    "",
    "Rules that were added after the draws of 9003, 9004 and 9005, and before those of 9006 and 9007:",
    "",
    "- A description of a value that another cause explains by its family or parameter explains no third group.",
    "- A guess about a mechanism is kept if it alone explains known causes of other failures.",
    "- A guess about the circumstances of a known value, such as layers that were frozen, is explained by causes of that value",
    "  only.",
    "- Of two likely causes of one value, the one that other failures show leads.",
    "- Three more consequences: clipping by the own norm leaves some gradients as they are, a momentum of float16 changes last",
    "  bits, and an update by the gradient of the step before is missing in the first step.",
    "",
    "Changes after the draws of 9006 and 9007 had begun; all but the last came before that of 9008. By the rules of the time",
    "14 of the 20 pairs of 9006 and 9007 are told first, and 5 of the 8 pairs of 9008:",
    "",
    "- Steps that are judged by the gradients that were there name all causes of wrong updates. This shows a mistake in the",
    "  optimizer although no gradient is right.",
    "- Jobs of resumed training with SGD come before those with Adam: a mistake in Adam hides no mistake in checkpoints.",
    "- A prediction that is nearly right is no sign of few bits if the model has running statistics. A score that is NaN on all",
    "  ranks is equal on all ranks. Steps by each rank's own gradient are not told as lost steps.",
    "- A description of a value that may come from another cause explains no mechanism.",
    "- A parameter that is left out of a message, and another one that a rank sends, are one cause: the larger group leads.",
    "- Three more consequences: wrong running statistics give wrong predictions, another place of Adam's epsilon looks like a",
    "  missing bias correction in a first step, and a lost last step is an update that is missing.",
    "- A value that is not loaded explains a loss of values that are not loaded, and a loaded state that is incomplete.",
    "",
    "Rules that were added after the draw of 9009 had been judged, and before that of 9010. They were made with the misses of",
    "9006 to 9009, and with 25 more pairs that are in no table:",
    "",
    "- The circumstances of a cause are those that its failing Jobs have in common: operations, layers, uneven batches, no_sync.",
    "  A guess, or a consequence of an earlier operation, is a symptom of the cause only if its Job has them all.",
    "- An error in one check is a symptom of a cause that more checks show, if its Job has the circumstances of that cause.",
    "  A rare description of a value comes before a rare error.",
    "- All kinds of causes that predict the same array are told, and the one that other failures show leads.",
    "- A sum in which only the rank's own part has a weight is not reduced, even if the loss is scaled as well. An element that",
    "  is updated by zero is not explained by a gradient that is zero there.",
    "- Clips are judged by the gradients that were there, so that wrong gradients hide no mistake in clipping.",
    "- Three more consequences. Gradients that are reduced in the next backward are local until then: this had been the other",
    "  way round. A kept loss scale gives other factors, and a broadcast in the first forward leaves initial values until then.",
    "",
    "Two faults changed gradients beside their mistake in the optimizer, and no longer do. Two are now registered with the cause",
    "that most of their failures name.",
    "",
    "Rules that were added while the draw of 9010 ran, with 18 more single faults, count for `now` only:",
    "",
    "- Of an element that is updated by zero, only one rank's own gradient is excluded as the cause. The new rule excluded all",
    "  partial causes, and one pair of 9010 was missed by that.",
    "- A difference of last bits in one check is a symptom like an error in one check.",
    "- A perplexity of large losses is cut off only if it is too small, and if no other hypothesis fits.",
    "- Seven more consequences in training runs, samplers, metrics and scores.",
    "",
    "Rules that were added after the draw of 9010, and before that of 9011. They were made with the misses above, and with 38",
    "more single faults, 30 more pairs and a triple:",
    "",
    "- A check that fails by a known cause judges each operation of its Jobs by the values that the ranks showed before it:",
    "  steps, clips, checkpoints, predictions, losses and, if no gradient is known to be wrong, gradients. It tells a mechanism",
    "  that is neither known nor implied by a known cause. Fifteen checks do so, for at most ten seconds each.",
    "- A large tensor is a circumstance like a layer.",
    "- Consequences of ten more causes, such as a doubled gradient that looks like a step of twice the length.",
    "",
    "Rules that were added after the draw of 9011, and before that of 9012:",
    "",
    "- The search judges one mistake for each kind of operation in a Job: what an optimizer keeps is not shown. It judges only",
    "  values that the operation decides, and no clip of gradients that differ between ranks. Before, it told false causes in",
    "  five of the 24 combinations of 9011, and no right one.",
    "- Two more consequences.",
    "",
    "Rules that were added after the draw of 9012, and before that of 9021:",
    "",
    "- The search tells no cause of a rank that raises an error, and judges no step after a backward that moved parameters.",
    "- A frozen layer whose last bits change is not trained.",
    "",
    "Rules that were added after the draw of 9021 had begun, and before that of 9022. They were made with the misses of 9012 and",
    "9021, and with 30 more single faults, of which 27 were told alone before:",
    "",
    "- A start with short reads or taken ports lets the ranks in one after the other. A failure after a start at an old address",
    "  may come from the order of arrival as well. A rank that must start first is then one cause.",
    "- A mistake in rendezvous explains ranks that do not start again.",
    "- A call that is repeated or measured has its collective as a circumstance.",
    "- A failure without any cause is a symptom of a guess about a special layer that its model has.",
    "- If a check knows why some ranks may have ended a training run, this comes before their end.",
    "- Consequences of four causes, such as few random numbers, of which many come twice.",
    "",
    "Rules that were added after the first results of 9022, with 14 more single faults, of which 11 were told alone before,",
    "count for `now` only, and for 9023, a draw of triples after them:",
    "",
    "- A wrong divisor explains others that are the same number in some arrays.",
    "- A value that is not loaded, and a step from its initial value, are one cause: the larger group leads.",
    "- Two more consequences: lost micro-batches, and an array whose result is written elsewhere.",
    "",
    "A fault in two triples of 9023 had a second mistake, zero for no gradient, which was told rightly as a cause of its own; it",
    "has one mistake since. Of the four misses, this explains one. In the three others no failure names a planted cause: most",
    "backwards raise errors, three factors are wrong in every gradient at once, or steps follow wrong gradients.",
    "",
    "Rules that were added after the draw of 9031, and before that of 9032:",
    "",
    "- A cause that shows only with a rank without samples, or with an interrupted window, implies nothing elsewhere. A buffer",
    "  is a circumstance like a layer.",
    "- Three more consequences. A parameter that is broadcast in part is now registered with the cause that tells it.",
    "",
    "Rules that were added while the draw of 9032 ran, count for `now` only:",
    "",
    "- What a guess implies is its symptom only in the circumstances of that guess: an earlier backward explains no first one.",
    "- Layouts that differ on one rank and on all may look alike: the larger group leads.",
    "- A divisor that counts ranks or micro-batches counts micro-batches if single backwards are right.",
    "- Nine more consequences.",
    "",
    "Of the 10 triples of 9031 and 9032 of which no failure names some cause, six have a fault by which backwards hang or raise",
    "errors. Of the 34 others, 31 are told first by the present rules.",
    "",
    "## Misses",
    "",
    "| pairs missed when new | 2026 | 4711 | 6174 | 2718 | 9001 | 9002 "
    "| 9003, 9005 | 9006 to 9008 | 9009 | 9010 | 9011 | 9012 | 9021, 9022 | 9031, 9032 |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    "| no failure names the second cause: the other fault hides it | 4 | 1 | 0 | 0 | 2 | 3 | 3 | 3 | 0 | 2 | 3 | 0 | 1 | 0 |",
    "| the quick profile does not reach the second fault | 0 | 0 | 0 | 2 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |",
    "| a symptom stands above it, or it stands under another cause | 1 | 1 | 2 | 2 | 3 | 3 | 3 | 5 | 1 | 0 | 1 | 0 | 0 | 1 |",
    "| it is told under another name | 1 | 2 | 0 | 1 | 1 | 1 | 0 | 1 | 2 | 1 | 0 | 2 | 0 | 2 |",
    "",
    "The failures of seed 8128 were not stored: of its 7 pairs that have run, 3 were told first, and 3 of 4 misses are of",
    "the first kind.",
    "",
    "In some misses of the first kind every backward hangs, or a wrong loss ends every Job. In others the first wrong",
    "gradient ends the check's Job. To judge later operations of that Job by the observed gradients helps in the check of",
    "steps with batch norm. In the check of clipping it shows clips that are wrong at once, but no norm that is kept from an",
    "earlier clip: only a random program clips twice. A wrong prediction that does not end the judgement of its Job was tried",
    "as well: it does not help, because another Job fails first.",
    "",
    "The four misses of 9010 that remain are of the first kind. Every backward of one pair hangs. In another, gradients that",
    "are not reduced cannot be left by zero_grad. In the triples, wrong losses and initial values end the Jobs.",
    "",
    "Of the 74 single faults of 9012, 9021, 9022 and of these rules, four are told under another name by the present rules, and",
    "none has a second headline. The other name is often as true: a parameter that is broadcast in part is each rank's own",
    "initial value, and without momentum the optimizer's state looks lost.",
    "",
    "Eleven hidden pairs and triples of these and other draws ran again with the search by shown values. In nine it names the",
    "second cause, and the true causes are first. It cannot see a fault where every backward hangs or raises an error, or a",
    "second mistake in the same kind of operation. A cause that is only possible is not told. Of a broken replica the search",
    "takes two seconds of processor time, on all ranks together.",
    "",
    "An earlier search was taken out: a check that repeats a known cause ran again, and failures by known causes counted as",
    "passed. It found a hidden cause in 1 of the 5 pairs that it was tuned on, beside a false one, and none in 7 new pairs;",
    "1 of 11 single faults got a false second headline.",
    "",
    "Rules that were added after the draw of 9041 count for `now` only: a part that is divided once too often explains a tail",
    "that is wrong, and NaN from nowhere explains an operation after which it is first seen.",
)


def _row(one: Combination) -> str:
    told, more = one.told[:6], len(one.told[6:])
    words = ", ".join(told) + f", and {more} more" * bool(more)
    right = "alone" if one.alone_when_new else "first" if one.right_when_new else "no; first now" if one.right else "no"
    return f"| {', '.join(one.causes)} | {words} | {right} |"

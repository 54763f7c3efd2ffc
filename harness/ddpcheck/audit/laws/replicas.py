"""Laws of the replicas: parameters start and stay equal, buffers too, and the optimizer holds the trained
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...causes import Cause
from ...causes.audit import replicas as causes
from ...counted_nouns import counted
from ..event_journal import Event
from ..evidence import Evidence
from .law import LawVerdict, broken, held, not_judged
from .losses import near
from .optimizer_states import optimizer_states_apart
from .resuming import restored_on_some_ranks
from .untrained_updates import update_of_some_ranks

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def states(evidence: Evidence) -> Iterator[tuple[Event, ...]]:
    """The states in use at the same point of the run on every rank: the n-th of each step."""
    found: list[dict[tuple[int, int], Event]] = []
    for rank, events in enumerate(evidence.each_rank("state")):
        own: dict[tuple[int, int], Event] = {}
        count: dict[int, int] = {}
        for event in events:
            number = count[event["step"]] = count.get(event["step"], -1) + 1
            own[event["step"], number] = _by_name(evidence, rank, event) if evidence.dealt_out else event
        found.append(own)
    for place in sorted(set(found[0]).intersection(*found[1:])):
        yield tuple(own[place] for own in found)


def _by_name(evidence: Evidence, rank: int, state: Event) -> Event:
    """The state with parameters by name, as their numbers differ between ranks. Each is in the optimizer of some rank."""
    names, every = evidence.names_of_rank[rank], {name for own in evidence.names_of_rank for name in own.values()}
    digests = {}
    for key, value in state["digests"].items():
        name = names.get(key, key.partition(".")[2])
        digests[f"0.{name}" if name in every else key] = value
    return {**state, "digests": digests}


def different(together: tuple[Event, ...], kind: str) -> list[str]:
    """Names that differ: parameters of optimizers (p), of modules only (m), buffers (b)."""
    first, *others = (event["digests"] for event in together)
    return [
        name
        for name, value in first.items()
        if (name[0] == kind if kind != "p" else name[0].isdigit())
        and any(name in other and other[name] != value for other in others)
    ]


def equal_until(evidence: Evidence) -> int:
    """The first step at whose start the ranks' parameters differ; past the last step if there is none."""
    for together in states(evidence):
        if different(together, "p"):
            return int(together[0]["step"])
    return evidence.steps_seen + 1


def buffers_equal_until(evidence: Evidence) -> int:
    """The first step in which ranks use different buffers. Batch norm's do not count, since training does not use
    them.
    """
    if any(event["broadcast_buffers"] for event in evidence.real.of(0, "wrapped")):
        apart = _apart_outside_wrappers(evidence)
        return apart[0] if apart else evidence.steps_seen + 1
    for together in states(evidence):
        if any(not name.endswith(_STATISTICS) for name in different(together, "b")):
            return int(together[0]["step"])
    return evidence.steps_seen + 1


def ranks_start_from_the_same_parameters(evidence: Evidence) -> LawVerdict:
    if evidence.sharded:
        return not_judged(evidence.sharded)
    first = next((each for each in states(evidence) if any(n[0].isdigit() for n in each[0]["digests"])), None)
    if first is None:
        return not_judged("no forward with an optimizer was seen")
    names = different(first, "p")
    if not names:
        count = sum(name[0].isdigit() for name in first[0]["digests"])
        made = _made_from_own_data(evidence, len(first[0]["digests"]))
        return held(f"{count} parameters are equal in all bits", observation=made)
    parameter = evidence.name(names[0])
    headline = (
        f"{counted(len(names), 'parameter differs', 'parameters differ')} before the first step, first {parameter}"
    )
    loading = [rank for rank in range(evidence.ranks) if evidence.real.of(rank, "load")]
    if 0 < len(loading) < evidence.ranks:
        line = evidence.real.of(loading[0], "load")[0]["line"]
        cause = causes.WEIGHTS_LOADED_ON_ONE_RANK(ranks=tuple(loading), line=line)
        return broken(headline, cause, causes.DIFFERENT_INITIAL_PARAMETERS(parameter=parameter))
    return broken(headline, causes.DIFFERENT_INITIAL_PARAMETERS(parameter=parameter))


def _made_from_own_data(evidence: Evidence, count: int) -> str:
    """What the user should know about initial values that both runs as one process make alike, and rank 0 otherwise. Random
    values without a seed are other ones in each run; a seed that depends on the world size makes all `count` otherwise.
    """
    runs = [evidence.mirrors[name].of(0, "initial") for name in ("one", "noise") if name in evidence.mirrors]
    norms = [event["norms"] for events in runs for event in events[:1]]
    if len(norms) < 2:
        return ""
    alike = [name for name, norm in norms[0].items() if near(norm, norms[1].get(name, math.inf))]
    if not 0 < 2 * len(alike) <= count:
        return ""
    return (
        f"one process makes {counted(len(alike), 'other initial value')} than rank 0, first {evidence.name(alike[0])}: if they "
        "are computed from the data, as means are, all samples must count"
    )


def replicas_stay_equal(evidence: Evidence) -> LawVerdict:
    if evidence.sharded:
        return not_judged(evidence.sharded)
    if ranks_start_from_the_same_parameters(evidence).status != "held":
        return not_judged("the ranks do not start equal")
    seen: set[int] = set()
    for together in states(evidence):
        names = different(together, "p")
        step = together[0]["step"]
        if names:
            last = f"; in step {max(seen)} they are equal" if seen else ""
            headline = (
                f"{counted(len(names), 'parameter differs', 'parameters differ')} in step {step}, "
                f"first {evidence.name(names[0])}{last}"
            )
            apart = _changed_apart(evidence, names, step)
            if apart and seen and _equal_again(evidence, names, step):
                cause = causes.SWAPPED_WEIGHTS_DIFFER(step=max(seen), parameter=evidence.name(names[0]))
                return broken(f"{headline}, and again in the next one", cause)
            return broken(
                headline,
                *restored_on_some_ranks(evidence, step),
                *optimizer_states_apart(evidence, max(seen, default=0), step),
                *_not_sent(evidence, names[0], step),
                *apart,
                causes.REPLICAS_DRIFT(step=step, parameter=evidence.name(names[0])),
            )
        if any(name[0].isdigit() for name in together[0]["digests"]):
            seen.add(step)
    return held(f"equal in all bits in {counted(len(seen), 'step')}, last in step {max(seen, default=0)}")


def _equal_again(evidence: Evidence, names: list[str], step: int) -> bool:
    """Whether a later state has equal values of all these parameters, though no rank sent them."""
    if any(event["step"] >= step and event["op"] == "broadcast" for event in evidence.real.of(0, "collective")):
        return False
    later = next((each for each in states(evidence) if each[0]["step"] > step), None)
    return later is not None and not set(names) & set(different(later, "p"))


def _not_sent(evidence: Evidence, key: str, step: int) -> tuple[Cause, ...]:
    """The cause, if one rank's optimizer alone holds a parameter that differs."""
    name = evidence.name(key)
    owners = [rank for rank, names in enumerate(evidence.names_of_rank) if name in names.values()]
    if not evidence.dealt_out or len(owners) != 1:
        return ()
    return (causes.PARAMETER_NOT_SENT(rank=owners[0], parameter=name, step=step),)


def _changed_apart(evidence: Evidence, names: list[str], step: int) -> tuple[Cause, ...]:
    """The cause, if a parameter was equal on all ranks after its last step, and some ranks changed it since."""
    if evidence.dealt_out:
        return ()
    now = next(each for each in states(evidence) if each[0]["step"] == step and different(each, "p"))
    for name in names:
        optimizer, number = map(int, name.split("."))
        steps = [
            [e for e in own if e["step"] < step and e["optimizer"] == optimizer][-1:]
            for own in evidence.each_rank("step")
        ]
        after = [own[0]["after"][number] if own and len(own[0].get("after", ())) > number else "" for own in steps]
        if not after[0] or any(each != after[0] for each in after):
            continue
        ranks = tuple(rank for rank, state in enumerate(now) if state["digests"].get(name) != after[0])
        if ranks:
            line = steps[0][0]["line"]
            return (causes.PARAMETERS_CHANGED_APART(ranks=ranks, parameter=evidence.name(name), line=line),)
    return ()


def buffers_are_equal(evidence: Evidence) -> LawVerdict:
    """Buffers that the script sends from one rank must not differ before, or the other ranks' updates are lost. The running
    statistics of batch norm may differ, as training does not use them, and so may buffers of step 0, which are initial values.
    A wrapper sends all buffers, unasked, whether training uses them or not: if the forward pass does not, the loss is a note.
    """
    if lost := _lost_by_the_script(evidence):
        return lost
    if any(event["broadcast_buffers"] for event in evidence.real.of(0, "wrapped")):
        if apart := _apart_outside_wrappers(evidence):
            step, buffer = apart
            return broken(
                f"{buffer} differs in step {step}, and no wrapper has its module", causes.BUFFERS_DIFFER(buffer=buffer)
            )
        lost_names = _lost_by_a_wrapper(evidence, _outside_wrappers(evidence))
        used = {event["buffer"] for event in evidence.real.of(0, "used_buffer")}
        if name := next((each for each in lost_names if each in used), ""):
            line = next((event["line"] for event in evidence.real.of(0, "forward")), "")
            return broken(
                f"{name} differs between ranks before the wrapper sends that of rank 0, and the forward pass uses it",
                causes.BUFFER_OF_ONE_RANK(buffer=name, rank=0, line=line),
            )
        note = f"only rank 0's updates of {lost_names[0]} count: it differs between ranks before" if lost_names else ""
        return held("the wrapper sends rank 0's buffers before each forward", observation=note)
    seen = False
    for together in states(evidence):
        seen = seen or any(name[0] == "b" for name in together[0]["digests"])
        names = different(together, "b")
        if names and together[0]["step"] > 0:
            buffer = names[0].partition(".")[2]
            return broken(
                f"{counted(len(names), 'buffer differs', 'buffers differ')} in step {together[0]['step']}, first {buffer}",
                causes.BUFFERS_DIFFER(buffer=buffer),
            )
    return held() if seen else not_judged("the modules have no buffers")


def _lost_by_the_script(evidence: Evidence) -> LawVerdict | None:
    """A buffer that differs between ranks when the script sends that of one rank."""
    sent = ([event for event in events if "buffer" in event] for events in evidence.each_rank("collective"))
    for together in zip(*sent, strict=False):
        names, digests = ({event[key] for event in together} for key in ("buffer", "digest"))
        (buffer, *others) = names
        if not others and len(digests) > 1 and not buffer.endswith(_STATISTICS) and together[0]["step"] > 0:
            root, line = together[0]["root"], together[0]["line"]
            return broken(
                f"{buffer} differs between ranks in step {together[0]['step']}, before that of rank {root} is sent",
                causes.BUFFER_OF_ONE_RANK(buffer=buffer, rank=root, line=line),
            )
    return None


def _apart_outside_wrappers(evidence: Evidence) -> tuple[int, str] | None:
    """The first step in which a used buffer differs whose module no wrapper has, such as a loss, and its name."""
    outside = _outside_wrappers(evidence)
    used = {event["buffer"] for event in evidence.real.of(0, "used_buffer")}
    for together in states(evidence) if outside and used else ():
        for name in different(together, "b") if together[0]["step"] > 0 else ():
            place, _, buffer = name[1:].partition(".")
            if int(place) in outside and buffer in used and not buffer.endswith(_STATISTICS):
                return int(together[0]["step"]), buffer
    return None


def _outside_wrappers(evidence: Evidence) -> set[int]:
    """The places of the modules that no wrapper has."""
    modules = evidence.real.of(0, "module")
    wrapped = {module["name"] for module in modules if module["wrapper"]}
    return {module["place"] for module in modules if not module["wrapper"] and module["name"] not in wrapped}


def _lost_by_a_wrapper(evidence: Evidence, outside: set[int]) -> list[str]:
    """The buffers that differ between ranks before a wrapper sends rank 0's. outside: places of modules that none sends."""
    trained = (together for together in states(evidence) if together[0]["step"] > 0)
    names = (name for together in trained for name in different(together, "b") if not name.endswith(_STATISTICS))
    places = (name[1:].partition(".") for name in names)
    return list(dict.fromkeys(name for place, _, name in places if int(place) not in outside))


def evaluated_models_are_equal(evidence: Evidence) -> LawVerdict:
    """Parameters without optimizer that all ranks use, such as those of moving averages and of teachers."""
    for again in evidence.aligned("statistics"):
        first, *others = (event["digests"] for event in again)
        if name := next((n for n, value in first.items() if any(own.get(n, value) != value for own in others)), ""):
            cause = causes.STATISTICS_OF_OWN_SHARD(module=again[0]["module"], buffer=name, line=again[0]["line"])
            return broken(f"{name} of {again[0]['module']} differs between ranks where it is evaluated", cause)
    seen = False
    for together in states(evidence):
        seen = seen or any(name[0] == "m" for name in together[0]["digests"])
        names = different(together, "m")
        if names and together[0]["step"] > 0:
            module, parameter = _module_of(evidence, names[0])
            differ = f"{counted(len(names), 'parameter')} of {module} {'differs' if len(names) == 1 else 'differ'}"
            if _parts_with_the_trained(evidence, names[0], together):
                return not_judged(
                    f"{differ}, first {parameter}, since those that are trained do; before, they are equal"
                )
            return broken(f"{differ}, first {parameter}", _why_models_differ(evidence, names[0]))
    if saved := _not_updated_where_it_is_saved(evidence):
        return saved
    if seen:
        return held()
    uncalled = next(
        (_module_of(evidence, name)[0] for together in states(evidence) for name in _uncalled(together)), ""
    )
    return not_judged(
        f"no forward pass uses {uncalled}, a model that no optimizer trains" if uncalled else _ALL_TRAINED
    )


def _parts_with_the_trained(evidence: Evidence, name: str, together: tuple[Event, ...]) -> bool:
    """Whether all ranks change a parameter that was equal before the trained ones differed, as an average of them is."""
    until = (each for each in states(evidence) if each[0]["step"] <= together[0]["step"])
    seen = [[_digest(evidence, state, name) for state in each] for each in until]
    equal = any(None not in own and len(set(own)) == 1 for own in seen)
    changed = all(len({*own} - {None}) > 1 for own in zip(*seen, strict=True))
    return equal and changed and bool(different(together, "p"))


def _digest(evidence: Evidence, state: Event, name: str) -> str | None:
    """The parameter's digest in a state, in which no forward pass may have used its model yet."""
    same = _module_of(evidence, name)
    return next(
        (value for each, value in state["digests"].items() if each[0] in "mu" and _module_of(evidence, each) == same),
        None,
    )


_ALL_TRAINED = "every parameter is in an optimizer"


def _not_updated_where_it_is_saved(evidence: Evidence) -> LawVerdict | None:
    """Of models that no forward pass uses, such as an average that is only saved: rank 0, which saves, may be the only one to
    update them, or not at all.
    """
    seen = list(states(evidence))
    for name in _uncalled(seen[0]) if seen else ():
        own = [[each["digests"].get(name) for each in rank] for rank in zip(*seen, strict=True)]
        changing = [None not in digests and len(set(digests)) > 1 for digests in own]
        if any(changing) and not changing[0] and (update := update_of_some_ranks(evidence, name)):
            module, parameter = _module_of(evidence, name)
            cause = causes.SAVED_MODEL_NOT_UPDATED(
                module=module,
                parameter=parameter,
                ranks=update.ranks,
                line=update.line,
                condition=update.condition,
            )
            return broken(f"{parameter} of {module} stays as it is on rank 0, and changes on other ranks", cause)
    return None


def _uncalled(together: tuple[Event, ...]) -> list[str]:
    return [name for name in together[0]["digests"] if name[0] == "u"]


def _module_of(evidence: Evidence, name: str) -> tuple[str, str]:
    """The module's class, and the parameter's name in it."""
    place, _, parameter = name.partition(".")
    if name[0] == "u":
        return place[1:].partition(" ")[0], parameter
    modules = evidence.real.of(0, "module")
    return next((m["name"] for m in modules if m["place"] == int(place[1:])), "a module"), parameter


def _why_models_differ(evidence: Evidence, name: str) -> Cause:
    """Parameters that some ranks change and others do not are updated on one rank alone. Otherwise the ranks do the same with
    them, so that they differed at the start.
    """
    module, parameter = _module_of(evidence, name)
    own = [
        [each["digests"][name] for each in rank if name in each["digests"]]
        for rank in zip(*states(evidence), strict=True)
    ]
    changing = [len(set(digests)) > 1 for digests in own]
    if len(own[0]) == 1 or any(each != changing[0] for each in changing):
        if update := update_of_some_ranks(evidence, name):
            return causes.MODEL_UPDATED_ON_SOME_RANKS(
                module=module,
                parameter=parameter,
                ranks=update.ranks,
                line=update.line,
                condition=update.condition,
            )
        return causes.MODELS_DIFFER(module=module, parameter=parameter)
    how = "Every rank updates them." if changing[0] else "No rank changes them."
    return causes.MODELS_START_DIFFERENT(
        module=module, parameter=parameter, how=f"{how} No wrapper sends them to other ranks."
    )


def untrained_model_apart(evidence: Evidence, step: int) -> str:
    """The first module whose untrained parameters differ between ranks in this step; empty if there is none."""
    names = (name for together in states(evidence) if together[0]["step"] == step for name in different(together, "m"))
    return next((_module_of(evidence, name)[0] for name in names), "")


def optimizers_hold_what_is_trained(evidence: Evidence) -> LawVerdict:
    found = evidence.real.of(0, "state")
    if not any("unoptimized" in event for event in found):
        return not_judged("no forward with a torch optimizer was seen")
    for event in found:
        if event["step"] == 0 and not event["grad"]:
            continue
        missing, strays = event["unoptimized"], event["strays"]
        if missing and strays:
            cause = causes.OPTIMIZER_HOLDS_REPLACED(parameter=missing[0], count=len(strays))
            these = counted(len(missing), "trained parameter is", "trained parameters are")
            return broken(f"{these} in no optimizer, first {missing[0]}", cause)
    last = found[-1]["unoptimized"] if not evidence.dealt_out else ()
    if last:
        return held(
            observation=f"no optimizer has {counted(len(last), 'parameter that needs', 'parameters that need')} a gradient, "
            f"first {last[0]}: is that meant?"
        )
    return held()


def batch_norm_is_converted(evidence: Evidence) -> LawVerdict:
    modules = evidence.real.of(0, "module")
    norms = [(module, name) for module in modules if module["grad"] for name in module["batch_norms"]]
    if not norms:
        return not_judged("the modules have no batch norm over one rank's samples")
    meant = bool(evidence.real.of(0, "converted")) or any(module["own_norms"] for module, _ in norms)
    mixed = any(module["sync_batch_norm"] for module, _ in norms)
    if meant or mixed:
        cause = causes.BATCH_NORM_NOT_CONVERTED(count=len(norms), module=norms[0][1])
        takes = counted(len(norms), "batch norm takes", "batch norms take")
        return broken(f"{takes} statistics over one rank's samples, first {norms[0][1]}", cause)
    normalise = counted(len(norms), "batch norm normalises", "batch norms normalise")
    return held(
        observation=f"{normalise} each rank's samples alone, first {norms[0][1]}: SyncBatchNorm would take the whole batch, as "
        "one process does"
    )

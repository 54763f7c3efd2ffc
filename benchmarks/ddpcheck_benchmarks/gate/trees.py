"""Checkouts of a git repository in temporary worktrees, which are removed at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Self

_NOBODY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "ddpcheck gate"), ("EMAIL", "gate@localhost"))
}
_ENDS_WITHIN = 3.0
"""Seconds for git to end after a signal."""


class GitFailed(Exception):
    """git failed, with its own message."""


class Repository:
    """The repository of a folder. GitFailed if the folder is in none."""

    def __init__(self, folder: Path) -> None:
        try:
            self.root = Path(_git(folder, "rev-parse", "--show-toplevel")).resolve()
        except GitFailed as error:
            raise GitFailed(f"{error}; run the gate in the git repository of the implementation") from error

    def commit(self, revision: str) -> str:
        """The full name of the commit of a branch, tag or other revision."""
        try:
            return _git(self.root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        except GitFailed as error:
            raise GitFailed(
                f"{error}; {revision} is no branch, tag or commit here: git branch --all lists branches, and a shallow clone "
                f"needs git fetch origin {revision}"
            ) from error

    def branched_at(self, revision: str, head: str) -> str:
        """The commit at which `head` branched off `revision`: later commits on `revision` are not head's."""
        commit = self.commit(revision)
        try:
            return _git(self.root, "merge-base", commit, head)
        except GitFailed:  # no common history, or a shallow clone lacks it
            return commit

    def snapshot(self) -> str:
        """A commit of the working tree with new files, but without ignored ones. No branch and no index changes."""
        with tempfile.TemporaryDirectory(prefix="ddpcheck-gate-") as folder:
            own = {"GIT_INDEX_FILE": str(Path(folder) / "index"), **_NOBODY}
            _git(self.root, "read-tree", "HEAD", variables=own)
            _git(self.root, "add", "--all", variables=own)
            tree = _git(self.root, "write-tree", variables=own)
            if tree == _git(self.root, "rev-parse", "HEAD^{tree}"):
                return self.commit("HEAD")
            return _git(self.root, "commit-tree", tree, "-p", "HEAD", "-m", "working tree", variables=own)

    def named(self, given: str, commit: str) -> str:
        """What the user gave for a commit, with the commit's short name if that says more."""
        short = _git(self.root, "rev-parse", "--short", commit)
        return short if given.startswith(short) else f"{given} {short}"


class Checkouts(AbstractContextManager["Checkouts"]):
    """Worktrees in one temporary folder, removed at the end in every case."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._stack = ExitStack()
        self.folder = Path()

    def __enter__(self) -> Self:
        _git(self._repository.root, "worktree", "prune")  # worktrees of a killed run
        # ignore_cleanup_errors: a rank that is ending may still write bytecode
        made = tempfile.TemporaryDirectory(prefix="ddpcheck-gate-", ignore_cleanup_errors=True)
        self.folder = Path(self._stack.enter_context(made)).resolve()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, name: str, commit: str) -> Path:
        """Check out a commit; returns its folder."""
        tree = self.folder / name
        self._stack.callback(self._remove, tree)
        _git(self._repository.root, "worktree", "add", "--detach", str(tree), commit)
        return tree

    def _remove(self, tree: Path) -> None:
        """Remove a worktree, even if git has registered it and its folder does not exist because `add` was
        interrupted.
        """
        known = _git(self._repository.root, "worktree", "list", "--porcelain").splitlines()
        if f"worktree {tree}" in known:
            _git(self._repository.root, "worktree", "remove", "--force", "--force", str(tree))


def _git(folder: Path, *words: str, variables: dict[str, str] | None = None) -> str:
    """The output of git, which runs in a session of its own, so that Ctrl-C does not stop its clean-up.

    If a signal ends the command meanwhile, git and its children are ended, with time to remove git's locks.
    """
    # inside a git hook these variables name another repository than the folder's
    inherited = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        running = subprocess.Popen(
            ["git", *words],
            cwd=folder,
            env=inherited | (variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise GitFailed("git is not installed; the gate takes both sides from a git repository") from error
    with running:
        try:
            out, said = running.communicate()
        except BaseException:
            _end(running)
            raise
    if running.returncode:
        raise GitFailed(f"git {' '.join(words)}: {said.strip() or f'exit status {running.returncode}'}")
    return out.strip()


def _end(running: subprocess.Popen[str]) -> None:
    """End all processes of its session: a remaining child would write into a folder that is being removed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(running.pid, number)
        with suppress(subprocess.TimeoutExpired):
            running.wait(_ENDS_WITHIN)

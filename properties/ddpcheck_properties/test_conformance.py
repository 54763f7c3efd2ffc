"""Every check, bound to the adapters of --ddp-adapter:

pytest --pyargs ddpcheck_properties --ddp-adapter my_ddp.adapter:adapter --ddp-world-sizes 1,2,3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpcheck import parametrize_with_checks

if TYPE_CHECKING:
    from ddpcheck.testing.bound_checks import BoundCheck


@parametrize_with_checks()
def test_conformance(check: BoundCheck) -> None:
    check()

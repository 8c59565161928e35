from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common.errors import SettingsError
from penstock.node.identity import node_identity


def test_an_id_outlives_the_node_in_its_folder(tmp_path: Path) -> None:
    with node_identity(str(tmp_path / "node")) as first:
        pass
    with node_identity(str(tmp_path / "node")) as second:
        assert second == first


def test_without_a_folder_every_start_has_an_id_of_its_own() -> None:
    with node_identity("") as first, node_identity("") as second:
        assert first != second


def test_two_nodes_cannot_share_a_folder(tmp_path: Path) -> None:
    with node_identity(str(tmp_path)), pytest.raises(SettingsError, match="another node"), node_identity(str(tmp_path)):
        pass


def test_a_file_that_holds_no_id_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "node_id").write_text("me")
    with pytest.raises(SettingsError, match="holds no node id"), node_identity(str(tmp_path)):
        pass

"""What data sets in memory are told of page views, and of tables that are filled while lines are read.

Lines belong to no page views and parameter servers fill their own tables, so none of it has an effect: as in Paddle's
CPU wheels, unless lines have log keys.
"""

from __future__ import annotations


class PageViews:
    """The settings, for scripts to read back.

    Attributes:
        parse_logkey, merge_by_sid, enable_pv_merge: whether lines have log keys, and are merged into page views.
        gen_uni_feasigns, local_shard_num: whether the numbers of lines are collected, and for how many tables.
    """

    parse_logkey, merge_by_sid, enable_pv_merge = False, True, False
    gen_uni_feasigns, local_shard_num = False, 0

    def set_parse_logkey(self, parse_logkey: bool) -> None:
        """No effect: lines have no log keys."""
        self.parse_logkey = parse_logkey

    def set_merge_by_sid(self, merge_by_sid: bool) -> None:
        """No effect: lines have no search ids to be merged by."""
        self.merge_by_sid = merge_by_sid

    def set_enable_pv_merge(self, enable_pv_merge: bool) -> None:
        """No effect: lines belong to no page views."""
        self.enable_pv_merge = enable_pv_merge

    def set_current_phase(self, current_phase: int) -> None:
        """No effect: there are no phases of joining and updating page views."""

    def preprocess_instance(self) -> None:
        """A no-op: there are no page views to be put together."""

    def postprocess_instance(self) -> None:
        """A no-op: no samples were put together."""

    def get_pv_data_size(self) -> int:
        """The number of page views: 0."""
        return 0

    def set_generate_unique_feasigns(self, generate_uni_feasigns: bool, shard_num: int) -> None:
        """No effect: servers make a row when it is first asked for."""
        self.gen_uni_feasigns, self.local_shard_num = generate_uni_feasigns, shard_num

    def generate_local_tables_unlock(
        self, table_id: int, fea_dim: int, read_thread_num: int, consume_thread_num: int, shard_num: int
    ) -> None:
        """A no-op: servers make a row when it is first asked for."""

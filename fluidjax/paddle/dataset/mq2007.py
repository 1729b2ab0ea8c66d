"""MQ2007 of LETOR 4.0, learning to rank: queries with documents of 46 features and a relevance of 0, 1 or 2.

The archive is a RAR file: unpacking it requires the module ``rarfile`` and a program that it calls; alternatively,
unpack it yourself next to the archive.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fluidjax.base.optional import optional
from fluidjax.paddle.dataset import archives
from fluidjax.paddle.dataset.common import download

URL = "http://www.bigdatalab.ac.cn/benchmark/upload/download_source/7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar"
MD5 = "7be1640ae95c6408dab0ae7207bdc706"
FIELDS = 48  # relevance, query id and 46 features


class Query:
    """A document as an answer to a query: its relevance and features."""

    def __init__(
        self,
        query_id: int = -1,
        relevance_score: int = -1,
        feature_vector: list[float] | None = None,
        description: str = "",
    ) -> None:
        self.query_id = query_id
        self.relevance_score = relevance_score
        self.feature_vector = [] if feature_vector is None else feature_vector
        self.description = description

    def __str__(self) -> str:
        return f"{self.relevance_score} {self.query_id} {' '.join(map(str, self.feature_vector))}"

    def _parse_(self, text: str) -> Query | None:
        """Parse a line ``2 qid:10 1:0.03 ... 46:0.07 #docid = ...``; None if the number of fields is wrong."""
        line, _, comment = text.partition("#")
        parts = line.split()
        if len(parts) != FIELDS:
            sys.stdout.write(f"expect {FIELDS} space split parts, get {len(parts)}\n")
            return None
        self.description = comment.strip()
        self.relevance_score = int(parts[0])
        self.query_id = int(parts[1].split(":")[1])
        self.feature_vector += [float(part.split(":")[1]) for part in parts[2:]]
        return self


class QueryList:
    """The documents of one query."""

    def __init__(self, querylist: list[Query] | None = None) -> None:
        self.query_id = -1
        self.querylist: list[Query] = []
        for query in querylist or []:
            self._add_query(query)

    def __iter__(self) -> Iterator[Query]:
        return iter(self.querylist)

    def __len__(self) -> int:
        return len(self.querylist)

    def __getitem__(self, i: int) -> Query:
        return self.querylist[i]

    def _correct_ranking_(self) -> None:
        self.querylist.sort(key=lambda query: query.relevance_score, reverse=True)

    def _add_query(self, query: Query) -> None:
        if self.query_id not in (-1, query.query_id):
            raise ValueError(
                f"query in list must be same query_id: expected {self.query_id}, received {query.query_id}; "
                "make a QueryList for each query"
            )
        self.query_id = query.query_id
        self.querylist.append(query)


def _ranked(querylist: QueryList | list[Query]) -> QueryList:
    ranked = querylist if isinstance(querylist, QueryList) else QueryList(querylist)
    ranked._correct_ranking_()
    return ranked


def gen_plain_txt(querylist: QueryList | list[Query]) -> Iterator[tuple[int, int, np.ndarray]]:
    """(query id, relevance, features), the most relevant document first."""
    ranked = _ranked(querylist)
    for query in ranked:
        yield ranked.query_id, query.relevance_score, np.array(query.feature_vector)


def gen_point(querylist: QueryList | list[Query]) -> Iterator[tuple[int, np.ndarray]]:
    """(relevance, features), the most relevant document first."""
    for query in _ranked(querylist):
        yield query.relevance_score, np.array(query.feature_vector)


def gen_pair(
    querylist: QueryList | list[Query], partial_order: str = "full"
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """([1], features of the more relevant, features of the less relevant) for each pair of different relevance."""
    ranked = _ranked(querylist)
    for index, better in enumerate(ranked):
        for worse in ranked.querylist[index + 1 :]:
            if better.relevance_score > worse.relevance_score:
                yield np.array([1]), np.array(better.feature_vector), np.array(worse.feature_vector)


def gen_list(querylist: QueryList | list[Query]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """All documents at once: (relevances [n, 1], features [n, 46])."""
    ranked = _ranked(querylist)
    yield np.array([[q.relevance_score] for q in ranked]), np.array([q.feature_vector for q in ranked])


def query_filter(querylists: Iterable[Iterable[Query]]) -> list[Any]:
    """The queries that have a relevant document."""
    return [querylist for querylist in querylists if sum(query.relevance_score for query in querylist) != 0]


def _folder() -> str:
    path = fetch()
    folder = os.path.dirname(path)
    if not os.path.isdir(os.path.join(folder, "MQ2007")):
        todo = f"rarfile, or unpack {path} there yourself"
        rarfile = optional("rarfile", "paddle.dataset.mq2007 needs rarfile to unpack its archive", todo)
        rarfile.RarFile(path).extractall(path=folder)
    return folder


def load_from_text(filepath: str, shuffle: bool = False, fill_missing: int = -1) -> list[QueryList]:
    """The queries of a file in the unpacked archive, in order (``shuffle`` and ``fill_missing`` have no effect, as in
    Fluid)."""
    querylists: list[QueryList] = []
    path = os.path.join(_folder(), filepath)
    with archives.sound(path), open(path) as file:
        for line in file:
            query = Query()._parse_(line)
            if query is None:
                continue
            if not querylists or querylists[-1].query_id != query.query_id:
                querylists.append(QueryList())
            querylists[-1]._add_query(query)
    return querylists


def _reader(filepath: str, format: str = "pairwise", shuffle: bool = False, fill_missing: int = -1) -> Iterator[Any]:
    """Samples of each query in the given format; for 'plain_txt' and 'pointwise' only the first, as in Fluid."""
    for querylist in query_filter(load_from_text(filepath, shuffle=shuffle, fill_missing=fill_missing)):
        if format == "plain_txt":
            yield next(gen_plain_txt(querylist))
        elif format == "pointwise":
            yield next(gen_point(querylist))
        elif format == "pairwise":
            yield from gen_pair(querylist)
        elif format == "listwise":
            yield next(gen_list(querylist))
        else:
            raise ValueError(f"format is {format!r}; expected plain_txt, pointwise, pairwise or listwise")


train = functools.partial(_reader, filepath="MQ2007/MQ2007/Fold1/train.txt")
test = functools.partial(_reader, filepath="MQ2007/MQ2007/Fold1/test.txt")


def fetch() -> str:
    """Download the archive; returns its path."""
    return download(URL, "MQ2007", MD5)

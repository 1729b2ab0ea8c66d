"""MovieLens 1M: ratings of 3,883 films by 6,040 users.

Words and categories are numbered in sorted order (in Fluid, in set order, which varies between runs).
"""

from __future__ import annotations

import functools
import re
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from fluidjax.paddle.dataset import archives, common

__all__ = [
    "train",
    "test",
    "get_movie_title_dict",
    "max_movie_id",
    "max_user_id",
    "age_table",
    "movie_categories",
    "max_job_id",
    "user_info",
    "movie_info",
]

age_table = [1, 18, 25, 35, 45, 50, 56]

URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"

MOVIE_INFO: dict[int, MovieInfo] | None = None
MOVIE_TITLE_DICT: dict[str, int] | None = None
CATEGORIES_DICT: dict[str, int] | None = None
USER_INFO: dict[int, UserInfo] | None = None


class MovieInfo:
    """A film: its id, title and categories."""

    def __init__(self, index: str | int, categories: list[str], title: str) -> None:
        self.index = int(index)
        self.categories = categories
        self.title = title

    def value(self) -> list[Any]:
        """[id, numbers of the categories, numbers of the title's words]."""
        words = get_movie_title_dict()
        kinds = movie_categories()
        return [self.index, [kinds[c] for c in self.categories], [words[w.lower()] for w in self.title.split()]]

    def __repr__(self) -> str:
        return f"<MovieInfo id({self.index}), title({self.title}), categories({self.categories})>"


class UserInfo:
    """A user: id, gender, age group (an index into ``age_table``) and job."""

    def __init__(self, index: str | int, gender: str, age: str | int, job_id: str | int) -> None:
        self.index = int(index)
        self.is_male = gender == "M"
        self.age = age_table.index(int(age))
        self.job_id = int(job_id)

    def value(self) -> list[int]:
        """[id, 0 for male and 1 for female, age group, job]."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]

    def __repr__(self) -> str:
        gender = "M" if self.is_male else "F"
        return f"<UserInfo id({self.index}), gender({gender}), age({age_table[self.age]}), job({self.job_id})>"


def _records(package: zipfile.ZipFile, name: str) -> Iterator[list[str]]:
    with package.open(f"ml-1m/{name}.dat") as file:
        for line in file:
            yield line.decode("latin-1").strip().split("::")


def _load() -> str:
    """Load films and users once; returns the path of the archive."""
    global MOVIE_INFO, MOVIE_TITLE_DICT, CATEGORIES_DICT, USER_INFO
    path = common.download(URL, "movielens", MD5)
    if MOVIE_INFO is not None:
        return path
    with archives.zipped(path) as package:
        films = {}
        for index, title, categories in _records(package, "movies"):
            match = re.match(r"^(.*)\((\d+)\)$", title)
            name = match.group(1) if match else title
            films[int(index)] = MovieInfo(index, categories.split("|"), name)
        users = {
            int(user): UserInfo(user, gender, age, job) for user, gender, age, job, _ in _records(package, "users")
        }
    words = {word.lower() for film in films.values() for word in film.title.split()}
    kinds = {kind for film in films.values() for kind in film.categories}
    MOVIE_TITLE_DICT = {word: number for number, word in enumerate(sorted(words))}
    CATEGORIES_DICT = {kind: number for number, kind in enumerate(sorted(kinds))}
    MOVIE_INFO, USER_INFO = films, users
    return path


def _ratings(rand_seed: int = 0, test_ratio: float = 0.1, is_test: bool = False) -> Iterator[list[Any]]:
    path = _load()
    draw = np.random.RandomState(rand_seed)
    films, users = movie_info(), user_info()
    with archives.zipped(path) as package:
        for user, film, rating, _ in _records(package, "ratings"):
            if (draw.random_sample() < test_ratio) == is_test:
                yield [*users[int(user)].value(), *films[int(film)].value(), [float(rating) * 2 - 5.0]]


def _reader_creator(**kwargs: Any) -> Any:
    return lambda: _ratings(**kwargs)


# Calls give a reader of [user, gender, age, job, film, categories, title, [rating in -3 .. 5]].
train = functools.partial(_reader_creator, is_test=False)
test = functools.partial(_reader_creator, is_test=True)


def get_movie_title_dict() -> dict[str, int]:
    """Numbers for the words of titles."""
    _load()
    assert MOVIE_TITLE_DICT is not None
    return MOVIE_TITLE_DICT


def movie_categories() -> dict[str, int]:
    """Numbers for the categories."""
    _load()
    assert CATEGORIES_DICT is not None
    return CATEGORIES_DICT


def movie_info() -> dict[int, MovieInfo]:
    """The films by id."""
    _load()
    assert MOVIE_INFO is not None
    return MOVIE_INFO


def user_info() -> dict[int, UserInfo]:
    """The users by id."""
    _load()
    assert USER_INFO is not None
    return USER_INFO


def max_movie_id() -> int:
    """The largest film id."""
    return max(movie_info())


def max_user_id() -> int:
    """The largest user id."""
    return max(user_info())


def max_job_id() -> int:
    """The largest job number."""
    return max(user.job_id for user in user_info().values())


def unittest() -> None:
    """Read everything and print the index of the last training and test samples."""
    print(*(sum(1 for _ in part()()) - 1 for part in (train, test)))


def fetch() -> None:
    """Download the archive."""
    common.download(URL, "movielens", MD5)

"""fluid.dataset: MultiSlot files as Paddle 1.8.5 reads them, and training on them."""

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax.core import Gloo
from fluidjax.files.errors import FileFormatError
from fluidjax.incubate.fleet.base.meeting import Meeting
from fluidjax.incubate.fleet.base.role_maker import UserDefinedRoleMaker

EXE = fluid.Executor()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text("1 1 2 3 4 1 0.5\n1 0 1 7 1 1.5\n1 1 3 1 2 3 1 2.5\n")
    (tmp_path / "b.txt").write_text("1 0 1 9 1 3.5\n\n1 1 2 8 8 1 4.5\n")
    return [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]


@pytest.fixture
def net():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        main.slots = [
            fluid.data("label", [None, 1], "int64"),
            fluid.data("ids", [None, 1], "int64", lod_level=1),
            fluid.data("price", [None, 1], "float32"),
        ]
        yield main


def make(kind, net, files):
    dataset = fluid.DatasetFactory().create_dataset(kind)
    dataset.set_batch_size(2)
    dataset.set_thread(2)
    dataset.set_filelist(files)
    dataset.set_use_var(net.slots)
    if kind == "InMemoryDataset":
        dataset.load_into_memory()
    return dataset


def contents(feeds):
    found = []
    for feed in feeds:
        ids = feed["ids"]
        label, price = np.array(feed["label"]).ravel().tolist(), np.array(feed["price"]).tolist()
        found.append((label, np.array(ids).ravel().tolist(), ids.lod(), price))
    return found


BATCHES = [
    ([1, 0], [3, 4, 7], [[0, 2, 3]], [[0.5], [1.5]]),
    ([1, 0], [1, 2, 3, 9], [[0, 3, 4]], [[2.5], [3.5]]),
    ([1], [8, 8], [[0, 2]], [[4.5]]),
]


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset", "FileInstantDataset"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches(kind, drop_last, net, files):
    loader = fluid.io.DataLoader.from_dataset(make(kind, net, files), fluid.cpu_places(1), drop_last=drop_last)
    for _ in range(2):
        assert contents(feed for (feed,) in loader) == (BATCHES[:2] if drop_last else BATCHES)


@pytest.mark.parametrize("drop_last", [False, True])
def test_each_place_has_a_batch(drop_last, net, files):
    """The third of three batches is none for two places, as in Fluid; values are tensors at the places."""
    places = fluid.cpu_places(2)
    loader = fluid.io.DataLoader.from_dataset(make("QueueDataset", net, files), places, drop_last=drop_last)
    (data,) = list(loader)
    assert contents(data) == BATCHES[:2]
    for feed, place in zip(data, places, strict=True):
        assert feed["label"].shape() == [2, 1] and feed["label"]._place()._equals(place)


def test_the_passes_of_a_boxps(net, files):
    """Without a BoxPS, passes are loaded and train like any data in memory; `end_pass` keeps them, as in Fluid."""
    dataset = make("BoxPSDataset", net, files)
    assert 'name: "PaddleBoxDataFeed"' in dataset.desc()
    dataset.set_date("20190930")
    with pytest.raises(ValueError):
        dataset.set_date("today")
    dataset.load_into_memory()
    dataset.begin_pass()
    loader = fluid.io.DataLoader.from_dataset(dataset, fluid.cpu_places(1), drop_last=False)
    assert (dataset.date, contents(feed for (feed,) in loader)) == ((2019, 9, 30), BATCHES)
    dataset.end_pass(True)
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == 5


def test_a_pipe_command(net, files):
    dataset = make("QueueDataset", net, files)
    swap = f"{sys.executable} -c \"import sys; [print('1 5', l[4:-1]) for l in sys.stdin if l.strip()]\""
    dataset.set_pipe_command(swap)
    assert [label for feed in dataset._feeds() for label in feed["label"].ravel()] == [5] * 5
    dataset.set_pipe_command("exit 3")
    with pytest.raises(RuntimeError, match="failed on"):
        list(dataset._feeds())


def test_training(net, files, capsys):
    words = fluid.layers.sequence_pool(fluid.embedding(net.slots[1], size=[10, 4]), "sum")
    guess = fluid.layers.fc(fluid.layers.reshape(words, [-1, 4]), size=1)
    loss = fluid.layers.mean(fluid.layers.square(guess - net.slots[2]))
    fluid.optimizer.SGD(0.02).minimize(loss)
    EXE.run(fluid.default_startup_program())
    dataset = make("InMemoryDataset", net, files)
    seen = []

    class Handler:
        def handler(self, values):
            seen.append(np.array(values["loss"]).item())

    def infer():
        options = {"print_period": 1, "fetch_handler": Handler()}
        EXE.infer_from_dataset(net, dataset, fetch_list=[loss], fetch_info=["loss"], **options)

    infer()
    for _ in range(12):
        EXE.train_from_dataset(net, dataset, fetch_list=[loss], fetch_info=["loss"], print_period=2)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12 and lines[0].startswith("step 2: loss = [")
    infer()
    assert len(seen) == 6 and sum(seen[3:]) < sum(seen[:3]) / 2  # the workers take batches in any order


@pytest.mark.parametrize("kind", ["QueueDataset", "InMemoryDataset"])
def test_workers_share_the_samples(kind, net, tmp_path, files):
    """Each sample is taken once, whoever takes it; the parameter has the sum over all of them."""
    prices = np.arange(1, 38, dtype="float32")
    for at in range(5):
        lines = [f"1 0 1 3 1 {price}\n" for price in prices[at::5]]
        (tmp_path / f"part{at}").write_text("".join(lines))
    weight = fluid.layers.create_parameter(
        [1], "float32", name="w", default_initializer=fluid.initializer.Constant(0.0)
    )
    total = fluid.layers.reduce_sum(net.slots[2])
    fluid.optimizer.SGD(1.0).minimize(fluid.layers.reduce_sum(weight * total))
    EXE.run(fluid.default_startup_program())
    dataset = make(kind, net, [str(tmp_path / f"part{at}") for at in range(5)])
    seen = []

    class Handler:
        def handler(self, values):
            seen.extend(np.array(values["price"]).ravel().tolist())

    asked = {"fetch_list": [net.slots[2]], "fetch_info": ["price"], "print_period": 1, "fetch_handler": Handler()}
    for thread in (3, 0):
        EXE.train_from_dataset(net, dataset, thread=thread, **asked)
    EXE.train_from_dataset(net, dataset, thread=3)
    assert sorted(seen) == sorted([*prices, *prices])
    assert np.array(fluid.global_scope().find_var("w").get_tensor()) == -3 * prices.sum()
    assert not [t for t in threading.enumerate() if t.name.startswith("fluidjax-worker")]


def test_what_a_worker_raises_ends_all(net, files):
    with open(files[1], "a") as file:
        file.write("1 x 1 3 1 0.5\n")
    net.global_block()
    with pytest.raises(FileFormatError, match="b.txt, line 4"):
        EXE.train_from_dataset(net, make("QueueDataset", net, files), fetch_list=[net.slots[2]], thread=2)
    dataset = make("QueueDataset", net, files)
    dataset.set_thread(0)
    with pytest.raises(RuntimeError, match="You should set thread num first"):
        EXE.train_from_dataset(net, dataset)


def test_workers_of_a_fleet_shuffle_and_count_their_samples_together(net, files, tmp_path, monkeypatch):
    """Two workers, here threads: samples go where they are drawn to; sizes are those of all."""
    monkeypatch.setattr(random, "choice", lambda parts: parts[1])
    together = [Gloo(), Gloo()]

    def worker(rank: int) -> list[float]:
        gloo = together[rank]
        gloo.set_rank(rank)
        gloo.set_size(2)
        gloo.set_timeout_seconds(20, 20)
        gloo.set_hdfs_store(str(tmp_path / "meet"), "", "")
        gloo.init()
        meeting = Meeting()
        meeting._peers = lambda: gloo
        meeting._works = lambda: True
        fleet = SimpleNamespace(_role_maker=meeting, worker_num=lambda: 2)
        dataset = make("InMemoryDataset", net, files[rank : rank + 1])
        dataset.global_shuffle(fleet)
        assert dataset.get_memory_data_size(fleet) == dataset.get_shuffle_data_size(fleet) == 5
        return [float(p) for feed in dataset._feeds() for p in feed["price"].ravel()]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(worker, range(2))
    assert (first, sorted(second)) == ([], [0.5, 1.5, 2.5, 3.5, 4.5])


def test_samples_stay_where_workers_do_not_meet(net, files):
    dataset = make("InMemoryDataset", net, files)
    fleet = SimpleNamespace(
        _role_maker=UserDefinedRoleMaker(worker_num=2, server_endpoints=["127.0.0.1:1"]), worker_num=lambda: 2
    )
    with pytest.raises(RuntimeError, match="samples cannot go(.|\n)*GeneralRoleMaker"):
        dataset.global_shuffle(fleet)


def test_the_data_set_behind_one(net, files):
    """``dataset.dataset`` has the files and the samples: scripts ask the one or the other."""
    dataset = make("InMemoryDataset", net, files)
    behind = dataset.dataset
    assert isinstance(behind, fluid.core.Dataset) and behind.get_filelist() == files and behind.get_thread_num() == 2
    assert behind.get_memory_data_size() == behind.get_shuffle_data_size() == 5
    with pytest.raises(RuntimeError, match="set_fea_eval"):
        behind.slots_shuffle({"price"})
    behind.set_fea_eval(True, 100)
    random.seed(3)
    dataset.set_pipe_command('sed "s/1/1/"')
    dataset.slots_shuffle(["ids"])
    found = contents(dataset._feeds())
    assert found != BATCHES
    assert sorted(i for _, ids, _, _ in found for i in ids) == [1, 2, 3, 3, 4, 7, 8, 8, 9]
    assert [price for *_, price in found] == [price for *_, price in BATCHES]
    assert behind.get_data_feed_desc().pipe_command == 'sed "s/1/1/"'
    behind.release_memory()
    assert behind.get_memory_data_size() == dataset.get_memory_data_size() == 0


def test_memory(net, files):
    dataset = make("InMemoryDataset", net, files)
    assert dataset.get_memory_data_size() == dataset.get_shuffle_data_size() == 5
    random.seed(1)
    dataset.local_shuffle()
    prices = [p for feed in dataset._feeds() for p in feed["price"].ravel()]
    assert sorted(prices) == [0.5, 1.5, 2.5, 3.5, 4.5] != prices
    with pytest.raises(RuntimeError, match="set_fea_eval"):
        dataset.slots_shuffle(["price"])
    dataset.set_fea_eval(100)
    dataset.slots_shuffle(["price"])
    pairs = {(tuple(s[1]), s[2][0]) for s in dataset._samples()}
    assert len(pairs) == 5 and sorted(price for _, price in pairs) == [0.5, 1.5, 2.5, 3.5, 4.5]
    dataset.release_memory()
    with pytest.raises(RuntimeError, match="load_into_memory"):
        dataset.global_shuffle()
    dataset.preload_into_memory()
    dataset.wait_preload_done()
    assert dataset.get_memory_data_size() == 5


@pytest.mark.parametrize(
    "line, message",
    [
        ("1 1 2 3\n", "count of 'ids' is wrong"),
        ("1 1 1 3\n", "count of 'price' is wrong"),
        ("1 1 1 3 1 0.5 7\n", "numbers are left over"),
        ("1 x 1 3 1 0.5\n", "values of 'label' are no int64"),
        ("-1 1 1 3 1 0.5\n", "count of 'label' is wrong"),
        ("99999999999 1\n", "count of 'label' is wrong"),
        ("1 99999999999999999999 1 1 1 1\n", "values of 'label' are no int64"),
    ],
)
def test_damaged_lines(line, message, net, files):
    with open(files[1], "w") as file:
        file.write("1 1 1 3 1 0.5\n" + line)
    with pytest.raises(FileFormatError, match="b.txt, line 2: .*" + message) as error:
        list(make("QueueDataset", net, files)._feeds())
    assert all(part in str(error.value) for part in ("expected:", "received:", "what to do:"))


@pytest.mark.parametrize("texts", [["ins_id"], ["ins_id", "content"]])
def test_lines_with_ids_and_contents(texts, net, files, tmp_path):
    """As 1.8.5 reads them: a 1 and a word each, before the numbers."""
    paths = []
    for path in files:
        paths.append(f"{path}.ids")
        with open(path) as plain, open(paths[-1], "w") as file:
            file.writelines("1 word " * len(texts) + line for line in plain if line.strip())
    dataset = make("QueueDataset", net, files)
    expected = contents(dataset._feeds())
    dataset = fluid.DatasetFactory().create_dataset("InMemoryDataset")
    dataset.set_batch_size(2)
    dataset.set_use_var(net.slots)
    for text in texts:
        getattr(dataset, f"set_parse_{text}")(True)
    dataset.set_filelist(paths)
    dataset.load_into_memory()
    assert contents(dataset._feeds()) == expected == BATCHES
    with open(paths[0], "w") as file:
        file.write("1 word 1\n" if len(texts) > 1 else "2 word 1 1 1 3 1 0.5\n")
    with pytest.raises(FileFormatError, match=f"line 1: the {texts[-1].removeprefix('ins_')} is missing"):
        dataset.load_into_memory()


def test_description(net, files):
    text = make("InMemoryDataset", net, files).desc()
    assert text.startswith('name: "MultiSlotInMemoryDataFeed"\nbatch_size: 2\nmulti_slot_desc {\n  slots {\n')
    assert 'name: "ids"\n    type: "uint64"\n    is_used: true\n  }' in text
    assert (
        'name: "price"\n    type: "float"\n    is_dense: true\n    is_used: true\n    shape: -1\n    shape: 1\n' in text
    )
    assert text.endswith('}\npipe_command: "cat"\n')


def test_wrong_use(net, files):
    with pytest.raises(ValueError, match="class Other does not exist"):
        fluid.DatasetFactory().create_dataset("Other")
    queue = make("QueueDataset", net, files)
    for shuffle in (queue.local_shuffle, queue.global_shuffle):
        with pytest.raises(NotImplementedError, match="please use InMemoryDataset"):
            shuffle()
    with pytest.raises(ValueError, match="only supports dtype"):
        queue.set_use_var([fluid.data("q", [None, 1], "float64")])
    with pytest.raises(ValueError, match="set_batch_size"):
        queue.set_batch_size(0)
    with pytest.raises(RuntimeError, match="dataset is need"):
        EXE.train_from_dataset(net)
    with pytest.raises(TypeError, match="fluid data set"):
        EXE.train_from_dataset(net, [1])
    queue.set_use_var([])
    with pytest.raises(RuntimeError, match="set_use_var"):
        queue._feeds()


def test_a_run_without_a_data_set() -> None:
    """Paddle's test compares the whole message, so what to do is a note of the exception."""
    with pytest.raises(RuntimeError) as caught:
        EXE.train_from_dataset(fluid.Program(), None)
    assert str(caught.value) == "dataset is need and should be initialized"
    assert "received None. Pass dataset=" in caught.value.__notes__[0]

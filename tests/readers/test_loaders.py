"""DataLoader and PyReader, iterable and not, against what Paddle 1.8.5 does."""

import threading
import time

import numpy as np
import pytest

import fluidjax as fluid
from fluidjax import reader as loaders
from fluidjax.dataloader import BatchSampler, Dataset, dataloader_iter
from fluidjax.layers import io as layers

CPU = fluid.CPUPlace()


@pytest.fixture
def net():
    """A program with x [., 2] and ragged w; total = the sum of x."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        main.x = fluid.data("x", [None, 2])
        main.w = fluid.data("w", [None, 1], "int64", lod_level=1)
        yield main


def total_of(program, name="x"):
    block = program.global_block()
    total = block.create_var(name="total", shape=[1], dtype="float32")
    block.append_op(type="reduce_sum", inputs={"X": name}, outputs={"Out": total}, attrs={"reduce_all": True})
    return total


def samples():
    for i in range(3):
        yield [i, 2.0], list(range(i + 1))


def batches():
    return fluid.io.batch(samples, 2)()


def arrays():
    yield np.ones((2, 2), "f4"), np.ones((2, 1), "i8")


def sources():
    return {
        "sample": lambda loader, **k: loader.set_sample_generator(samples, 2, drop_last=False, **k),
        "list": lambda loader, **k: loader.set_sample_list_generator(batches, **k),
        "batch": lambda loader, **k: loader.set_batch_generator(
            lambda: ([b["x"], b["w"]] for b in map(fluid.DataFeeder(["x", "w"], CPU).feed, batches())), **k
        ),
    }


@pytest.mark.parametrize("source", ["sample", "list", "batch"])
@pytest.mark.parametrize("return_list", [False, True])
def test_iterable(net, source, return_list):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2, return_list=return_list)
    assert sources()[source](loader, places=CPU) is loader
    for _ in range(2):
        items = list(loader)
        assert [len(item) for item in items] == [1, 1], "one feed for the one place"
        first = items[0][0] if return_list else [items[0][0]["x"], items[0][0]["w"]]
        assert np.array(first[0]).tolist() == [[0.0, 2.0], [1.0, 2.0]]
        assert (np.array(first[1]).tolist(), first[1].lod()) == ([[0], [0], [1]], [[0, 1, 3]])
        assert len(np.array(items[1][0][0] if return_list else items[1][0]["x"])) == 1


def test_feeds_run(net):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2)
    loader.set_sample_list_generator(batches, places=fluid.cpu_places())
    total = total_of(net)
    sums = [fluid.Executor().run(net, feed=feed, fetch_list=[total])[0].item() for feed in loader()]
    assert sums == [5.0, 4.0]


@pytest.mark.parametrize("count, kept, drop", [(4, [2, 2], True), (3, [2], True), (3, [2, 1], False), (1, [], True)])
def test_several_places(net, count, kept, drop):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2, drop_last=drop)
    loader.set_batch_generator(lambda: list(arrays()) * count, places=fluid.cpu_places(2))
    assert [len(item) for item in loader] == kept


def test_sample_generator_drops_the_last_batch(net):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2)
    loader.set_sample_generator(samples, 2, drop_last=True, places=CPU)
    assert len(list(loader)) == 1


def test_an_error_in_the_generator_is_raised_where_it_is_due(net):
    def broken():
        yield [([1, 2.0], [1])]
        raise KeyError("boom")

    for iterable in (True, False):
        loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2, iterable=iterable)
        loader.set_sample_list_generator(broken, places=CPU)
        if iterable:
            iterator = iter(loader)
            next(iterator)
            with pytest.raises(KeyError, match="boom"):
                next(iterator)
        else:
            total = total_of(net)
            loader.start()
            fluid.Executor().run(net, fetch_list=[total])
            with pytest.raises(KeyError, match="boom"):
                fluid.Executor().run(net, fetch_list=[total])
            loader.reset()


def test_leaving_a_pass_early_stops_its_thread(net):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2)
    loader.set_batch_generator(lambda: iter(lambda: next(arrays()), None), places=CPU)
    before = threading.active_count()
    for _ in range(3):
        next(iter(loader))
    assert threading.active_count() == before + 1, "a new pass ends the one before"
    loader._end()
    assert threading.active_count() == before


def test_loaders_of_programs_with_the_same_names():
    """A training and a test program are built under a guard each, and their loaders' queues live in one Scope."""
    made = []
    for _ in range(2):
        program = fluid.Program()
        with fluid.program_guard(program, fluid.Program()), fluid.unique_name.guard():
            x = fluid.data("x", [None, 2])
            fluid.io.DataLoader.from_generator([x], capacity=2, iterable=False)
        create, buffered, read = program.global_block().ops
        made += [create.input("blocking_queue")[0], create.output("Out")[0], buffered.output("Out")[0]]
        assert read.input("Reader") == buffered.output("Out")
    assert len(set(made)) == 6, made


def test_not_iterable(net):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2, iterable=False)
    total = total_of(net)
    assert [op.type for op in net.global_block().ops] == [
        "create_py_reader",
        "create_double_buffer_reader",
        "read",
        "reduce_sum",
    ]
    create, _, read = net.global_block().ops[:3]
    assert create.attr("shape_concat") == [-1, 2, -1, 1] and create.attr("ranks") == [2, 2]
    assert create.attr("lod_levels") == [0, 1] and create.attr("dtypes") == [5, 3]
    (queue,), (made,) = create.input("blocking_queue"), create.output("Out")
    number = queue.removeprefix("lod_tensor_blocking_queue_")
    assert create.attr("need_check_feed") == [1, 1] and made == f"create_py_reader_{number}"
    assert (read.input("Reader"), read.output("Out")) == ([f"double_buffer_{number}"], ["x", "w"])
    loader.set_sample_generator(samples, 2, drop_last=False)
    executor = fluid.Executor()
    with pytest.raises(RuntimeError, match="loader.start"):
        executor.run(net, fetch_list=[total])
    for _ in range(2):
        loader.start()
        sums = []
        with pytest.raises(fluid.core.EOFException, match="There is no next data"):
            while True:
                sums.append(executor.run(net, fetch_list=[total])[0].item())
        assert sums == [5.0, 4.0]
        loader.reset()
    loader.start()
    executor.run(net, fetch_list=[total])
    loader.reset()
    loader.start()
    assert executor.run(net, fetch_list=[total])[0].item() == 5.0, "reset in the middle begins anew"
    loader.reset()


def test_a_clone_reads_from_the_same_loader(net):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2, iterable=False, use_double_buffer=False)
    total = total_of(net)
    assert [op.type for op in net.global_block().ops] == ["create_py_reader", "read", "reduce_sum"]
    loader.set_sample_list_generator(batches)
    loader.start()
    clone = net.clone(for_test=True)
    assert fluid.Executor().run(clone, fetch_list=["total"])[0].item() == 5.0
    assert fluid.Executor().run(net, fetch_list=[total])[0].item() == 4.0
    assert "read" not in [op.type for op in net._inference_optimize(prune_read_op=True).global_block().ops]
    loader.reset()


def test_ragged_fetches(net):
    loader = fluid.io.DataLoader.from_generator([net.x, net.w], capacity=2, iterable=False)
    loader.set_sample_list_generator(batches)
    loader.start()
    (w,) = fluid.Executor().run(net, fetch_list=[net.w], return_numpy=False)
    assert (np.array(w).tolist(), w.lod()) == ([[0], [0], [1]], [[0, 1, 3]])
    loader.reset()


def test_wrong_use(net):
    make = fluid.io.DataLoader.from_generator
    with pytest.raises(ValueError, match="Feed list must be given"):
        make(capacity=2)
    for capacity in (None, 0):
        with pytest.raises(ValueError, match="Please give value to capacity"):
            make([net.x], capacity=capacity)
    loader = make([net.x, net.w], capacity=2)
    with pytest.raises(AssertionError, match="Data source of DataLoader has not set yet"):
        iter(loader)
    with pytest.raises(AssertionError, match="Places cannot be None"):
        loader.set_batch_generator(arrays)
    with pytest.raises(AssertionError, match="start"):
        loader.start()
    with pytest.raises(AssertionError, match="reset"):
        loader.reset()
    with pytest.raises(AssertionError, match="batch_size must be larger than 0"):
        loader.set_sample_generator(samples, 0, places=CPU)
    loader.set_batch_generator(lambda: [[np.ones((1, 2), "f4")]], places=CPU)
    with pytest.raises(ValueError, match=r"one value for each of \['x', 'w'\]"):
        list(loader)
    other = make([net.x, net.w], capacity=2, iterable=False)
    with pytest.raises(AssertionError, match="not iterable"):
        iter(other)
    with pytest.raises(TypeError, match="fluid data set"):
        fluid.io.DataLoader.from_dataset([1], CPU)


@pytest.mark.parametrize("iterable", [True, False])
def test_py_reader(net, iterable):
    reader = fluid.io.PyReader([net.x, net.w], capacity=2, iterable=iterable)
    assert reader.iterable is iterable
    reader.decorate_sample_list_generator(batches, places=CPU)
    total = total_of(net)
    executor = fluid.Executor()
    if iterable:
        assert [executor.run(net, feed=f, fetch_list=[total])[0].item() for f in reader()] == [5.0, 4.0]
        return
    reader.start()
    assert [executor.run(net, fetch_list=[total])[0].item() for _ in range(2)] == [5.0, 4.0]
    with pytest.raises(fluid.core.EOFException):
        executor.run(net, fetch_list=[total])
    reader.reset()


@pytest.mark.parametrize("by_data", [False, True])
def test_readers_as_layers(net, by_data):
    if by_data:
        reader = layers.create_py_reader_by_data(2, [net.x, net.w], name="rr")
    else:
        reader = layers.py_reader(2, [[-1, 2], [-1, 1]], ["float32", "int64"], [0, 1], name="rr")
    assert reader.name == "rr_double_buffer"
    x, w = layers.read_file(reader)
    assert (x.name, w.name, x.shape, w.lod_level) == ("read_file_0.tmp_0", "read_file_0.tmp_1", (-1, 2), 1)
    startup = fluid.default_startup_program().global_block()
    assert [op.type for op in startup.ops] == ["create_py_reader"]
    assert startup.ops[0].input("blocking_queue") == ["rr_queue"]
    total = total_of(net, x.name)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    with pytest.raises(RuntimeError, match="no source"):
        reader.start()
    reader.decorate_paddle_reader(batches)
    reader.start()
    assert [executor.run(net, fetch_list=[total])[0].item() for _ in range(2)] == [5.0, 4.0]
    with pytest.raises(fluid.core.EOFException):
        executor.run(net, fetch_list=[total])
    reader.reset()
    with pytest.raises(TypeError, match="expected a reader"):
        layers.read_file(x)


class Squares(Dataset):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def __getitem__(self, index):
        return np.full(2, index, "f4"), np.array([index * index], "i8")

    def __len__(self):
        return self.count


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("buffered", [False, True])
def test_data_sets_with_an_index(net, workers, buffered):
    started = []
    loader = fluid.io.DataLoader(
        Squares(5),
        feed_list=[net.x, net.w],
        places=CPU,
        batch_size=2,
        num_workers=workers,
        use_buffer_reader=buffered,
        worker_init_fn=started.append,
    )
    assert len(loader) == 3
    for _ in range(2):
        feeds = [feed for (feed,) in loader]
        assert [np.array(f["w"]).ravel().tolist() for f in feeds] == [[0, 1], [4, 9], [16]]
    assert set(started) <= set(range(workers))
    lists = fluid.io.DataLoader(Squares(4), places=CPU, return_list=True, batch_size=2, drop_last=True)
    assert [np.array(batch[0][0])[:, 0].tolist() for batch in lists] == [[0.0, 1.0], [2.0, 3.0]]


class Drawn(fluid.io.Dataset):
    """Samples drawn from NumPy's generator, seeded for each of them or before all."""

    def __init__(self, seeds):
        self.seeds = seeds

    def __getitem__(self, index):
        if self.seeds:
            np.random.seed(index)
        time.sleep(0.001)
        return (np.random.randint(1000, size=[1]),)

    def __len__(self):
        return 12


@pytest.mark.parametrize("seeds", [True, False])
def test_what_a_data_set_draws_does_not_depend_on_its_workers(seeds):
    """Workers share the generators; in Fluid each has its own, so that a sample seeded by its index is the same."""

    def drawn(workers):
        np.random.seed(7)
        loader = fluid.io.DataLoader(Drawn(seeds), places=CPU, return_list=True, batch_size=2, num_workers=workers)
        return [np.array(batch[0]).ravel().tolist() for (batch,) in loader]

    assert drawn(3) == drawn(0)


def test_workers_load_at_the_same_time_what_is_not_drawn():
    both = threading.Barrier(2, timeout=120)

    class Met(Squares):
        def __getitem__(self, index):
            if index:
                both.wait()  # for the other worker
            return super().__getitem__(index)

    loader = fluid.io.DataLoader(Met(5), places=CPU, return_list=True, num_workers=2)
    assert [np.array(batch[0][1]).item() for batch in loader] == [0, 1, 4, 9, 16]


def test_a_data_set_that_fails_while_it_draws_ends_the_pass():
    class Failing(Drawn):
        def __getitem__(self, index):
            if index == 3:
                raise KeyError("no sample 3")
            return super().__getitem__(index)

    loader = fluid.io.DataLoader(Failing(True), places=CPU, return_list=True, num_workers=2)
    with pytest.raises(KeyError, match="no sample 3"):
        list(loader)


def test_a_pass_knows_how_many_batches_it_has():
    loader = fluid.io.DataLoader(Squares(5), places=CPU, return_list=True, batch_size=2)
    batches = iter(loader)
    assert len(batches) == 3 and iter(batches) is batches
    assert np.array(batches.next()[0][0])[:, 0].tolist() == [0.0, 1.0] and len(list(batches)) == 2


def test_the_base_of_loaders_has_no_batches():
    for call in (iter, next, loaders.DataLoaderBase.next):
        with pytest.raises(NotImplementedError, match="DataLoader.from_generator"):
            call(loaders.DataLoaderBase())


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"batch_sampler": [[0]]}, "subclass instance of paddle.io.BatchSampler"), ({"places": [CPU, CPU]}, "must be 1")],
)
def test_what_an_eager_loader_does_not_take(settings, text):
    with fluid.dygraph.guard(), pytest.raises(AssertionError, match=text):
        fluid.io.DataLoader(Squares(2), **{"places": CPU, **settings})


def test_batch_sampler():
    assert list(BatchSampler(Squares(5), batch_size=2)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(indices=[3, 4, 5], batch_size=2, drop_last=True)) == [[3, 4]]
    shuffled = BatchSampler(Squares(9), batch_size=2, shuffle=True)
    assert sorted(i for group in shuffled for i in group) == list(range(9)) and len(shuffled) == 5
    for wrong in ({}, {"dataset": Squares(1), "indices": [0]}, {"dataset": [1]}, {"indices": [1], "batch_size": 0}):
        with pytest.raises(AssertionError):
            BatchSampler(**wrong)


def test_collating():
    assert loaders.default_collate_fn is dataloader_iter.default_collate_fn
    (stacked,) = loaders.default_collate_fn([np.ones(2), np.zeros(2)])
    assert stacked.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    a, b = loaders.default_collate_fn([(np.ones(2), 1), (np.zeros(2), 2)])
    assert a.shape == (2, 2) and b.tolist() == [1, 2]


def test_order_flag():
    assert loaders.keep_data_loader_order() is True
    loaders.keep_data_loader_order(False)
    assert loaders.keep_data_loader_order() is False
    loaders.keep_data_loader_order(True)
    with pytest.raises(AssertionError):
        loaders.keep_data_loader_order(1)

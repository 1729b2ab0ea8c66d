"""Parameter servers: the communication between trainers and servers used by the ops of their programs.

============  ==================================================================================================
wire          serialisation of messages: names and values, in Fluid's own tensor streams
settings      deadlines, sizes, token and certificates
client        the trainer's side: one channel to each server
conversation  its streams, on which short requests follow one another
listening     the server's front end: accepts connections, passes requests to the loop, returns its replies
server        the loop: serves requests one by one against the scope
rounds        when requests are served in sync mode; ``asynchronous`` does it for the other modes
blocks        the blocks of a server's program as jitted functions
tables        tables whose rows are created on first access
communicator  the trainer's side in modes that communicate alongside the training steps
ops           the functions called by the ops
============  ==================================================================================================
"""

from importlib import import_module

from lowering.engine.host import provide_later

SERVICES = (
    "send", "push", "count", "recv", "send_barrier", "fetch_barrier", "lookup", "prefetch", "checkpoint_notify",
    "recv_save", "listen_and_serv", "fl_listen_and_serv",
)  # fmt: skip


def provide_services() -> None:
    """Let ops of trainers and servers find their functions: these are imported with the first of them that runs."""
    provide_later(SERVICES, lambda: import_module("fluidjax.distributed.ops"))

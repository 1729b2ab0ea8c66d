"""Parameter servers: trainers and servers of one job, which say to each other what the ops of their programs ask for.

============  ==================================================================================================
wire          messages as bytes: names and values, in Fluid's own tensor streams
settings      deadlines, sizes, token and certificates
client        the trainer's side: one channel to each server
listening     the server's door: connections in, requests to the loop, answers out
server        the loop: one request after another, against the scope
rounds        when requests are served in sync mode; ``asynchronous`` in the other modes
blocks        the blocks of a server's program as jitted functions
tables        tables whose rows appear when they are asked for
communicator  the trainer's side in the modes where it sends and receives beside the steps
ops           what the ops call
============  ==================================================================================================
"""

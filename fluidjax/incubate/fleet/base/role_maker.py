"""What a process is in a fleet: a worker or a server, and which one."""

from fluidjax.base.unbuilt import unbuilt


class Role:
    """What a process of a fleet is."""

    WORKER = 1
    SERVER = 2


MockBarrier = unbuilt(__name__, "MockBarrier")
RoleMakerBase = unbuilt(__name__, "RoleMakerBase")
MPIRoleMaker = unbuilt(__name__, "MPIRoleMaker")
MPISymetricRoleMaker = unbuilt(__name__, "MPISymetricRoleMaker")
PaddleCloudRoleMaker = unbuilt(__name__, "PaddleCloudRoleMaker")
GeneralRoleMaker = unbuilt(__name__, "GeneralRoleMaker")
UserDefinedRoleMaker = unbuilt(__name__, "UserDefinedRoleMaker")
UserDefinedCollectiveRoleMaker = unbuilt(__name__, "UserDefinedCollectiveRoleMaker")

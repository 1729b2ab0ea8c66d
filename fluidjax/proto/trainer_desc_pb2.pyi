from fluidjax.proto import data_feed_pb2 as _data_feed_pb2
from fluidjax.proto import framework_pb2 as _framework_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TrainerDesc(_message.Message):
    __slots__ = ["class_name", "device_worker_name", "thread_num", "binding_cpu", "filelist", "debug", "fetch_config", "use_cvm", "dump_slot", "scale_datanorm", "mpi_rank", "dump_fields_path", "dump_fields", "dump_converter", "dump_param", "mpi_size", "dump_file_num", "check_nan_var_names", "copy_table_config", "adjust_ins_weight_config", "no_cvm", "thread_barrier", "loss_names", "hogwild_param", "pull_dense_param", "downpour_param", "section_param", "data_desc"]
    CLASS_NAME_FIELD_NUMBER: _ClassVar[int]
    DEVICE_WORKER_NAME_FIELD_NUMBER: _ClassVar[int]
    THREAD_NUM_FIELD_NUMBER: _ClassVar[int]
    BINDING_CPU_FIELD_NUMBER: _ClassVar[int]
    FILELIST_FIELD_NUMBER: _ClassVar[int]
    DEBUG_FIELD_NUMBER: _ClassVar[int]
    FETCH_CONFIG_FIELD_NUMBER: _ClassVar[int]
    USE_CVM_FIELD_NUMBER: _ClassVar[int]
    DUMP_SLOT_FIELD_NUMBER: _ClassVar[int]
    SCALE_DATANORM_FIELD_NUMBER: _ClassVar[int]
    MPI_RANK_FIELD_NUMBER: _ClassVar[int]
    DUMP_FIELDS_PATH_FIELD_NUMBER: _ClassVar[int]
    DUMP_FIELDS_FIELD_NUMBER: _ClassVar[int]
    DUMP_CONVERTER_FIELD_NUMBER: _ClassVar[int]
    DUMP_PARAM_FIELD_NUMBER: _ClassVar[int]
    MPI_SIZE_FIELD_NUMBER: _ClassVar[int]
    DUMP_FILE_NUM_FIELD_NUMBER: _ClassVar[int]
    CHECK_NAN_VAR_NAMES_FIELD_NUMBER: _ClassVar[int]
    COPY_TABLE_CONFIG_FIELD_NUMBER: _ClassVar[int]
    ADJUST_INS_WEIGHT_CONFIG_FIELD_NUMBER: _ClassVar[int]
    NO_CVM_FIELD_NUMBER: _ClassVar[int]
    THREAD_BARRIER_FIELD_NUMBER: _ClassVar[int]
    LOSS_NAMES_FIELD_NUMBER: _ClassVar[int]
    HOGWILD_PARAM_FIELD_NUMBER: _ClassVar[int]
    PULL_DENSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    DOWNPOUR_PARAM_FIELD_NUMBER: _ClassVar[int]
    SECTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_DESC_FIELD_NUMBER: _ClassVar[int]
    class_name: str
    device_worker_name: str
    thread_num: int
    binding_cpu: bool
    filelist: _containers.RepeatedScalarFieldContainer[str]
    debug: bool
    fetch_config: FetchConfig
    use_cvm: bool
    dump_slot: bool
    scale_datanorm: float
    mpi_rank: int
    dump_fields_path: str
    dump_fields: _containers.RepeatedScalarFieldContainer[str]
    dump_converter: str
    dump_param: _containers.RepeatedScalarFieldContainer[str]
    mpi_size: int
    dump_file_num: int
    check_nan_var_names: _containers.RepeatedScalarFieldContainer[str]
    copy_table_config: CopyTableConfig
    adjust_ins_weight_config: AdjustInsWeightConfig
    no_cvm: bool
    thread_barrier: bool
    loss_names: _containers.RepeatedScalarFieldContainer[str]
    hogwild_param: HogwildWorkerParameter
    pull_dense_param: PullDenseWorkerParameter
    downpour_param: DownpourWorkerParameter
    section_param: SectionWorkerParameter
    data_desc: _data_feed_pb2.DataFeedDesc
    def __init__(self, class_name: _Optional[str] = ..., device_worker_name: _Optional[str] = ..., thread_num: _Optional[int] = ..., binding_cpu: bool = ..., filelist: _Optional[_Iterable[str]] = ..., debug: bool = ..., fetch_config: _Optional[_Union[FetchConfig, _Mapping]] = ..., use_cvm: bool = ..., dump_slot: bool = ..., scale_datanorm: _Optional[float] = ..., mpi_rank: _Optional[int] = ..., dump_fields_path: _Optional[str] = ..., dump_fields: _Optional[_Iterable[str]] = ..., dump_converter: _Optional[str] = ..., dump_param: _Optional[_Iterable[str]] = ..., mpi_size: _Optional[int] = ..., dump_file_num: _Optional[int] = ..., check_nan_var_names: _Optional[_Iterable[str]] = ..., copy_table_config: _Optional[_Union[CopyTableConfig, _Mapping]] = ..., adjust_ins_weight_config: _Optional[_Union[AdjustInsWeightConfig, _Mapping]] = ..., no_cvm: bool = ..., thread_barrier: bool = ..., loss_names: _Optional[_Iterable[str]] = ..., hogwild_param: _Optional[_Union[HogwildWorkerParameter, _Mapping]] = ..., pull_dense_param: _Optional[_Union[PullDenseWorkerParameter, _Mapping]] = ..., downpour_param: _Optional[_Union[DownpourWorkerParameter, _Mapping]] = ..., section_param: _Optional[_Union[SectionWorkerParameter, _Mapping]] = ..., data_desc: _Optional[_Union[_data_feed_pb2.DataFeedDesc, _Mapping]] = ...) -> None: ...

class HogwildWorkerParameter(_message.Message):
    __slots__ = ["skip_ops", "stat_var_names"]
    SKIP_OPS_FIELD_NUMBER: _ClassVar[int]
    STAT_VAR_NAMES_FIELD_NUMBER: _ClassVar[int]
    skip_ops: _containers.RepeatedScalarFieldContainer[str]
    stat_var_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, skip_ops: _Optional[_Iterable[str]] = ..., stat_var_names: _Optional[_Iterable[str]] = ...) -> None: ...

class DownpourWorkerParameter(_message.Message):
    __slots__ = ["sparse_table", "dense_table", "skip_ops", "program_config", "push_sparse", "push_dense", "stat_var_names"]
    SPARSE_TABLE_FIELD_NUMBER: _ClassVar[int]
    DENSE_TABLE_FIELD_NUMBER: _ClassVar[int]
    SKIP_OPS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PUSH_SPARSE_FIELD_NUMBER: _ClassVar[int]
    PUSH_DENSE_FIELD_NUMBER: _ClassVar[int]
    STAT_VAR_NAMES_FIELD_NUMBER: _ClassVar[int]
    sparse_table: _containers.RepeatedCompositeFieldContainer[TableParameter]
    dense_table: _containers.RepeatedCompositeFieldContainer[TableParameter]
    skip_ops: _containers.RepeatedScalarFieldContainer[str]
    program_config: _containers.RepeatedCompositeFieldContainer[ProgramConfig]
    push_sparse: bool
    push_dense: bool
    stat_var_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sparse_table: _Optional[_Iterable[_Union[TableParameter, _Mapping]]] = ..., dense_table: _Optional[_Iterable[_Union[TableParameter, _Mapping]]] = ..., skip_ops: _Optional[_Iterable[str]] = ..., program_config: _Optional[_Iterable[_Union[ProgramConfig, _Mapping]]] = ..., push_sparse: bool = ..., push_dense: bool = ..., stat_var_names: _Optional[_Iterable[str]] = ...) -> None: ...

class SectionWorkerParameter(_message.Message):
    __slots__ = ["section_config", "queue_size", "sync_steps", "start_cpu_core_id", "param_need_sync"]
    SECTION_CONFIG_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    SYNC_STEPS_FIELD_NUMBER: _ClassVar[int]
    START_CPU_CORE_ID_FIELD_NUMBER: _ClassVar[int]
    PARAM_NEED_SYNC_FIELD_NUMBER: _ClassVar[int]
    section_config: _containers.RepeatedCompositeFieldContainer[SectionConfig]
    queue_size: int
    sync_steps: int
    start_cpu_core_id: int
    param_need_sync: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, section_config: _Optional[_Iterable[_Union[SectionConfig, _Mapping]]] = ..., queue_size: _Optional[int] = ..., sync_steps: _Optional[int] = ..., start_cpu_core_id: _Optional[int] = ..., param_need_sync: _Optional[_Iterable[str]] = ...) -> None: ...

class SectionConfig(_message.Message):
    __slots__ = ["program_desc", "place", "concurrency", "section_in_var_names", "section_out_var_names"]
    class Place(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
        CPUPlace: _ClassVar[SectionConfig.Place]
        CUDAPlace: _ClassVar[SectionConfig.Place]
        CUDAPinnedPlace: _ClassVar[SectionConfig.Place]
    CPUPlace: SectionConfig.Place
    CUDAPlace: SectionConfig.Place
    CUDAPinnedPlace: SectionConfig.Place
    PROGRAM_DESC_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    SECTION_IN_VAR_NAMES_FIELD_NUMBER: _ClassVar[int]
    SECTION_OUT_VAR_NAMES_FIELD_NUMBER: _ClassVar[int]
    program_desc: _framework_pb2.ProgramDesc
    place: SectionConfig.Place
    concurrency: int
    section_in_var_names: _containers.RepeatedScalarFieldContainer[str]
    section_out_var_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, program_desc: _Optional[_Union[_framework_pb2.ProgramDesc, _Mapping]] = ..., place: _Optional[_Union[SectionConfig.Place, str]] = ..., concurrency: _Optional[int] = ..., section_in_var_names: _Optional[_Iterable[str]] = ..., section_out_var_names: _Optional[_Iterable[str]] = ...) -> None: ...

class FetchConfig(_message.Message):
    __slots__ = ["fetch_var_names", "fetch_var_str_format", "print_period", "method"]
    class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
        PRINT: _ClassVar[FetchConfig.Method]
    PRINT: FetchConfig.Method
    FETCH_VAR_NAMES_FIELD_NUMBER: _ClassVar[int]
    FETCH_VAR_STR_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PRINT_PERIOD_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    fetch_var_names: _containers.RepeatedScalarFieldContainer[str]
    fetch_var_str_format: _containers.RepeatedScalarFieldContainer[str]
    print_period: int
    method: FetchConfig.Method
    def __init__(self, fetch_var_names: _Optional[_Iterable[str]] = ..., fetch_var_str_format: _Optional[_Iterable[str]] = ..., print_period: _Optional[int] = ..., method: _Optional[_Union[FetchConfig.Method, str]] = ...) -> None: ...

class AdjustInsWeightConfig(_message.Message):
    __slots__ = ["need_adjust", "nid_slot", "nid_adjw_threshold", "nid_adjw_ratio", "ins_weight_slot"]
    NEED_ADJUST_FIELD_NUMBER: _ClassVar[int]
    NID_SLOT_FIELD_NUMBER: _ClassVar[int]
    NID_ADJW_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NID_ADJW_RATIO_FIELD_NUMBER: _ClassVar[int]
    INS_WEIGHT_SLOT_FIELD_NUMBER: _ClassVar[int]
    need_adjust: bool
    nid_slot: str
    nid_adjw_threshold: float
    nid_adjw_ratio: float
    ins_weight_slot: str
    def __init__(self, need_adjust: bool = ..., nid_slot: _Optional[str] = ..., nid_adjw_threshold: _Optional[float] = ..., nid_adjw_ratio: _Optional[float] = ..., ins_weight_slot: _Optional[str] = ...) -> None: ...

class TableDependencyMap(_message.Message):
    __slots__ = ["key", "values"]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    key: int
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[int] = ..., values: _Optional[_Iterable[int]] = ...) -> None: ...

class CopyTableConfig(_message.Message):
    __slots__ = ["need_copy", "batch_num", "src_sparse_tables", "dest_sparse_tables", "src_dense_tables", "dest_dense_tables", "src_var_list", "dest_var_list", "dense_pull_after_copy", "sparse_copy_by_feasign", "enable_dependency", "table_denpendency_map"]
    NEED_COPY_FIELD_NUMBER: _ClassVar[int]
    BATCH_NUM_FIELD_NUMBER: _ClassVar[int]
    SRC_SPARSE_TABLES_FIELD_NUMBER: _ClassVar[int]
    DEST_SPARSE_TABLES_FIELD_NUMBER: _ClassVar[int]
    SRC_DENSE_TABLES_FIELD_NUMBER: _ClassVar[int]
    DEST_DENSE_TABLES_FIELD_NUMBER: _ClassVar[int]
    SRC_VAR_LIST_FIELD_NUMBER: _ClassVar[int]
    DEST_VAR_LIST_FIELD_NUMBER: _ClassVar[int]
    DENSE_PULL_AFTER_COPY_FIELD_NUMBER: _ClassVar[int]
    SPARSE_COPY_BY_FEASIGN_FIELD_NUMBER: _ClassVar[int]
    ENABLE_DEPENDENCY_FIELD_NUMBER: _ClassVar[int]
    TABLE_DENPENDENCY_MAP_FIELD_NUMBER: _ClassVar[int]
    need_copy: bool
    batch_num: int
    src_sparse_tables: _containers.RepeatedScalarFieldContainer[int]
    dest_sparse_tables: _containers.RepeatedScalarFieldContainer[int]
    src_dense_tables: _containers.RepeatedScalarFieldContainer[int]
    dest_dense_tables: _containers.RepeatedScalarFieldContainer[int]
    src_var_list: _containers.RepeatedScalarFieldContainer[str]
    dest_var_list: _containers.RepeatedScalarFieldContainer[str]
    dense_pull_after_copy: bool
    sparse_copy_by_feasign: bool
    enable_dependency: bool
    table_denpendency_map: _containers.RepeatedCompositeFieldContainer[TableDependencyMap]
    def __init__(self, need_copy: bool = ..., batch_num: _Optional[int] = ..., src_sparse_tables: _Optional[_Iterable[int]] = ..., dest_sparse_tables: _Optional[_Iterable[int]] = ..., src_dense_tables: _Optional[_Iterable[int]] = ..., dest_dense_tables: _Optional[_Iterable[int]] = ..., src_var_list: _Optional[_Iterable[str]] = ..., dest_var_list: _Optional[_Iterable[str]] = ..., dense_pull_after_copy: bool = ..., sparse_copy_by_feasign: bool = ..., enable_dependency: bool = ..., table_denpendency_map: _Optional[_Iterable[_Union[TableDependencyMap, _Mapping]]] = ...) -> None: ...

class ProgramConfig(_message.Message):
    __slots__ = ["program_id", "push_sparse_table_id", "push_dense_table_id", "pull_sparse_table_id", "pull_dense_table_id"]
    PROGRAM_ID_FIELD_NUMBER: _ClassVar[int]
    PUSH_SPARSE_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PUSH_DENSE_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_SPARSE_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_DENSE_TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    program_id: str
    push_sparse_table_id: _containers.RepeatedScalarFieldContainer[int]
    push_dense_table_id: _containers.RepeatedScalarFieldContainer[int]
    pull_sparse_table_id: _containers.RepeatedScalarFieldContainer[int]
    pull_dense_table_id: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, program_id: _Optional[str] = ..., push_sparse_table_id: _Optional[_Iterable[int]] = ..., push_dense_table_id: _Optional[_Iterable[int]] = ..., pull_sparse_table_id: _Optional[_Iterable[int]] = ..., pull_dense_table_id: _Optional[_Iterable[int]] = ...) -> None: ...

class PullDenseWorkerParameter(_message.Message):
    __slots__ = ["threshold", "device_num", "sleep_time_ms", "dense_table"]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NUM_FIELD_NUMBER: _ClassVar[int]
    SLEEP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    DENSE_TABLE_FIELD_NUMBER: _ClassVar[int]
    threshold: int
    device_num: int
    sleep_time_ms: int
    dense_table: _containers.RepeatedCompositeFieldContainer[TableParameter]
    def __init__(self, threshold: _Optional[int] = ..., device_num: _Optional[int] = ..., sleep_time_ms: _Optional[int] = ..., dense_table: _Optional[_Iterable[_Union[TableParameter, _Mapping]]] = ...) -> None: ...

class TableParameter(_message.Message):
    __slots__ = ["table_id", "dense_value_name", "dense_grad_name", "push_dense_wait_times", "sparse_key_name", "sparse_value_name", "sparse_grad_name", "push_sparse_wait_times", "emb_dim", "fea_dim", "label_var_name", "is_local", "is_async", "async_wait_op_name"]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    DENSE_VALUE_NAME_FIELD_NUMBER: _ClassVar[int]
    DENSE_GRAD_NAME_FIELD_NUMBER: _ClassVar[int]
    PUSH_DENSE_WAIT_TIMES_FIELD_NUMBER: _ClassVar[int]
    SPARSE_KEY_NAME_FIELD_NUMBER: _ClassVar[int]
    SPARSE_VALUE_NAME_FIELD_NUMBER: _ClassVar[int]
    SPARSE_GRAD_NAME_FIELD_NUMBER: _ClassVar[int]
    PUSH_SPARSE_WAIT_TIMES_FIELD_NUMBER: _ClassVar[int]
    EMB_DIM_FIELD_NUMBER: _ClassVar[int]
    FEA_DIM_FIELD_NUMBER: _ClassVar[int]
    LABEL_VAR_NAME_FIELD_NUMBER: _ClassVar[int]
    IS_LOCAL_FIELD_NUMBER: _ClassVar[int]
    IS_ASYNC_FIELD_NUMBER: _ClassVar[int]
    ASYNC_WAIT_OP_NAME_FIELD_NUMBER: _ClassVar[int]
    table_id: int
    dense_value_name: _containers.RepeatedScalarFieldContainer[str]
    dense_grad_name: _containers.RepeatedScalarFieldContainer[str]
    push_dense_wait_times: _containers.RepeatedScalarFieldContainer[int]
    sparse_key_name: _containers.RepeatedScalarFieldContainer[str]
    sparse_value_name: _containers.RepeatedScalarFieldContainer[str]
    sparse_grad_name: _containers.RepeatedScalarFieldContainer[str]
    push_sparse_wait_times: _containers.RepeatedScalarFieldContainer[int]
    emb_dim: int
    fea_dim: int
    label_var_name: str
    is_local: bool
    is_async: bool
    async_wait_op_name: str
    def __init__(self, table_id: _Optional[int] = ..., dense_value_name: _Optional[_Iterable[str]] = ..., dense_grad_name: _Optional[_Iterable[str]] = ..., push_dense_wait_times: _Optional[_Iterable[int]] = ..., sparse_key_name: _Optional[_Iterable[str]] = ..., sparse_value_name: _Optional[_Iterable[str]] = ..., sparse_grad_name: _Optional[_Iterable[str]] = ..., push_sparse_wait_times: _Optional[_Iterable[int]] = ..., emb_dim: _Optional[int] = ..., fea_dim: _Optional[int] = ..., label_var_name: _Optional[str] = ..., is_local: bool = ..., is_async: bool = ..., async_wait_op_name: _Optional[str] = ...) -> None: ...

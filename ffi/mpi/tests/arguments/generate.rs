//! Makes a C program from the list of functions: each is called once with good arguments, and once for every argument that can be
//! wrong, with that one wrong. What is good and what is wrong follows from a parameter's type and name.

use ironweave_abi_list::{Function, Parameter};
use std::fmt::Write;

/// A call of the program, and the error class that it has to have.
#[derive(Debug)]
pub struct Case {
    /// The function.
    pub function: String,
    /// The parameter that is wrong, and its value; empty when all are good.
    pub wrong: String,
    /// The class's name.
    pub class: &'static str,
}

/// Chapters that are not done, or have rules of their own.
const CHAPTERS: [&str; 6] = [
    "One-sided communication",
    "I/O",
    "Tool support",
    "Application binary interface",
    "Language bindings",
    "Fault tolerance (ULFM)",
];

/// What cannot be called like this: it ends something, calls back, takes what only another call gives, or is not done.
const LEFT_OUT: [&str; 32] = [
    "MPI_Abort",
    "MPI_Init",
    "MPI_Init_thread",
    "MPI_Finalize",
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_Comm_accept",
    "MPI_Comm_connect",
    "MPI_Comm_join",
    "MPI_Open_port",
    "MPI_Close_port",
    "MPI_Lookup_name",
    "MPI_Publish_name",
    "MPI_Unpublish_name",
    "MPI_Pcontrol",
    "MPI_Free_mem",
    "MPI_Info_create_env",
    "MPI_Get_address",
    "MPI_Grequest_start",
    "MPI_Grequest_complete",
    "MPI_Pready",
    "MPI_Pready_list",
    "MPI_Pready_range",
    "MPI_Parrived",
    "MPI_Startall",
    "MPI_Keyval_create",
    "MPI_Op_create",
    "MPI_Remove_error_class",
    "MPI_Remove_error_code",
    "MPI_Remove_error_string",
    "MPI_Intercomm_create_from_groups",
    "MPI_Comm_create_from_group",
];

fn is_left_out(function: &Function) -> bool {
    let name = function.name.as_str();
    let small = name.strip_suffix("_c").unwrap_or(name);
    let parts = ["create_keyval", "create_errhandler", "_buffer", "Buffer_", "Win_", "File_"];
    function.extension
        || function.returns != "int"
        || CHAPTERS.contains(&function.chapter.as_str())
        || function.chapter.starts_with("Removed")
        || LEFT_OUT.contains(&small)
        || parts.iter().any(|part| small.contains(part))
}

/// Calls that have no good arguments in a process alone.
fn is_always_wrong(function: &str) -> bool {
    matches!(
        function,
        "MPI_Comm_remote_group"
            | "MPI_Comm_remote_size"
            | "MPI_Intercomm_create"
            | "MPI_Intercomm_merge"
    )
}

/// Arrays of the program come in three widths.
fn suffix(kind: &str) -> &'static str {
    match kind.trim_start_matches("const ").trim_end_matches(" *") {
        "MPI_Aint" => "_a",
        "MPI_Count" => "_c",
        _ => "",
    }
}

/// An expression in C that is right for a parameter.
fn good(f: &str, kind: &str, name: &str, brackets: &str) -> String {
    let is_input = kind.starts_with("const");
    let suffix = suffix(kind);
    let text = match (kind, name) {
        _ if brackets == "[][3]" => "ranges",
        ("MPI_Comm", _) => match f {
            _ if f.starts_with("MPI_Dist_graph_neighbors") => "dist",
            _ if f.starts_with("MPI_Graph_get")
                || f.starts_with("MPI_Graph_neighbors")
                || f.starts_with("MPI_Graphdims") =>
            {
                "graph"
            }
            _ if f.to_lowercase().contains("neighbor_") => "cart",
            "MPI_Cart_create" | "MPI_Cart_map" => "comm",
            _ if f.starts_with("MPI_Cart") => "cart",
            _ => "comm",
        },
        ("MPI_Comm *", _) if f.ends_with("free") || f.ends_with("disconnect") => {
            "(MPI_Comm_dup(comm, &newcomm), &newcomm)"
        }
        ("MPI_Comm *", _) => "&newcomm",
        ("MPI_Datatype" | "const MPI_Datatype", _) if !brackets.is_empty() => {
            if is_input {
                "types"
            } else {
                "newtypes"
            }
        }
        ("MPI_Datatype", _) if f.starts_with("MPI_Type_get_contents") => "pair",
        ("MPI_Datatype", _) => "MPI_INT",
        ("MPI_Datatype *", _) if f.ends_with("free") || f.ends_with("commit") => {
            "(MPI_Type_contiguous(2, MPI_INT, &newtype), &newtype)"
        }
        ("MPI_Datatype *", _) => "&newtype",
        ("MPI_Op", _) => "MPI_SUM",
        ("MPI_Op *", _) => "(MPI_Op_create(combine, 1, &op), &op)",
        ("MPI_Group", _) => "group",
        ("MPI_Group *", _) if f.ends_with("free") => "(MPI_Comm_group(comm, &newgroup), &newgroup)",
        ("MPI_Group *", _) => "&newgroup",
        ("MPI_Info", _) => "info",
        ("MPI_Info *", _) if f.ends_with("free") => "(MPI_Info_create(&newinfo), &newinfo)",
        ("MPI_Info *", _) => "&newinfo",
        ("MPI_Errhandler", _) => "MPI_ERRORS_RETURN",
        ("MPI_Errhandler *", _) if f.ends_with("free") => {
            "(MPI_Comm_create_errhandler(hook, &handler), &handler)"
        }
        ("MPI_Errhandler *", _) => "&handler",
        ("MPI_Session", _) => "session",
        ("MPI_Session *", _) if f.ends_with("finalize") => {
            "(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &newsession), &newsession)"
        }
        ("MPI_Session *", _) => "&newsession",
        ("MPI_Message *", _) => "(message = MPI_MESSAGE_NO_PROC, &message)",
        ("MPI_Request" | "const MPI_Request", _) if !brackets.is_empty() => "requests",
        ("MPI_Request", _) => "MPI_REQUEST_NULL",
        ("MPI_Request *", _) if f == "MPI_Cancel" => {
            "(MPI_Irecv(a, 1, MPI_INT, 0, 77, comm, &request), &request)"
        }
        ("MPI_Request *", _) if f == "MPI_Start" || f == "MPI_Request_free" => {
            "(MPI_Recv_init(a, 1, MPI_INT, MPI_PROC_NULL, 1, comm, &request), &request)"
        }
        ("MPI_Request *", _) => "&request",
        ("MPI_Status *" | "const MPI_Status *", _) => "statuses",
        (_, "attribute_val" | "baseptr") => "pointers",
        ("void *" | "const void *", "buf" | "buffer" | "sendbuf" | "inbuf") => "a",
        ("void *" | "const void *", _) => "b",
        (_, "key") if is_input => "\"key\"",
        (_, "value") if is_input => "\"value\"",
        (_, "datarep") => "\"external32\"",
        (_, "pset_name") if is_input => "\"mpi://SELF\"",
        (_, "comm_name" | "type_name" | "string") if is_input => "\"name\"",
        ("char *", _) => "text",
        (_, "dims") if f == "MPI_Dims_create" => "(outs[0] = outs[1] = 0, outs)",
        (_, "array_of_distribs") => "blocks",
        (_, "array_of_dargs") => "defaults",
        (_, "index") if is_input => return format!("ones{suffix}"),
        (_, "displs" | "sdispls" | "rdispls") => return format!("apart{suffix}"),
        (_, "sourceweights" | "destweights" | "weights") if is_input => "ones",
        _ if !brackets.is_empty() && is_input => {
            let zero = ["rank", "start", "displ", "edge", "coord", "period", "source", "destin"];
            let zero = zero.iter().any(|part| name.contains(part));
            return format!("{}{suffix}", if zero { "zeros" } else { "ones" });
        }
        _ if !brackets.is_empty() => return format!("outs{suffix}"),
        (_, "buflen") => "(outs[0] = sizeof text, outs)",
        (_, "pset_len") => "(outs[0] = 0, outs)",
        (_, "position") => return format!("(outs{suffix}[0] = 0, outs{suffix})"),
        ("int *", "comm_keyval" | "keyval") => {
            "(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &newkey, 0), &newkey)"
        }
        ("int *", "type_keyval") => {
            "(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &newkey, 0), &newkey)"
        }
        _ if kind.ends_with('*') => return format!("&outs{suffix}[{}]", name.len()),
        (_, "dest" | "source") => "MPI_PROC_NULL",
        (_, "type_keyval") => "type_key",
        (_, "comm_keyval" | "keyval") => "comm_key",
        (_, "errorcode") if f.contains("string") => "my_code",
        (_, "errorcode") => "MPI_ERR_OTHER",
        (_, "errorclass") => "my_class",
        (_, "split_type") => "MPI_COMM_TYPE_SHARED",
        (_, "order") => "MPI_ORDER_C",
        (_, "outsize" | "insize") => "64",
        (_, "n") if f.contains("nth") => "0",
        (_, "root" | "rank" | "direction" | "color") | (_, "local_leader" | "remote_leader") => "0",
        (_, "max_integers" | "max_addresses" | "max_large_counts" | "max_datatypes") => "4",
        (_, "valuelen") => "32",
        _ => "1",
    };
    text.to_owned()
}

/// Expressions that are wrong for a parameter, and the error class that each asks for.
fn wrong(
    function: &Function,
    kind: &str,
    name: &str,
    brackets: &str,
) -> Vec<(String, &'static str)> {
    let f = function.name.as_str();
    let frees = f.ends_with("free") || f.ends_with("commit") || f.ends_with("disconnect");
    let is_input = kind.starts_with("const");
    let moves = function.chapter.starts_with("Point-to-point")
        || function.chapter.starts_with("Partitioned")
        || function.chapter.starts_with("Collective")
        || f.contains("eighbor_")
        || (f.contains("ack") && !f.contains("ack_size") && !f.contains("external_size"));
    let is_datatype = f.contains("Type_");
    let list: &[(&str, &str)] = match (kind, name) {
        _ if brackets == "[][3]" => &[("wrong_ranges", "RANK")],
        ("MPI_Comm", _) if f == "MPI_Comm_get_name" => &[],
        ("MPI_Comm", _) => &[("MPI_COMM_NULL", "COMM")],
        ("MPI_Comm *", _) if frees => &[("(newcomm = MPI_COMM_NULL, &newcomm)", "COMM")],
        ("const MPI_Datatype", _) => &[("no_types", "TYPE")],
        ("MPI_Datatype", _) if f == "MPI_Type_get_name" => &[],
        ("MPI_Datatype", _) if !brackets.is_empty() => &[],
        ("MPI_Datatype", _) if moves && !f.contains("Get_count") => {
            &[("MPI_DATATYPE_NULL", "TYPE"), ("uncommitted", "TYPE")]
        }
        ("MPI_Datatype", _) => &[("MPI_DATATYPE_NULL", "TYPE")],
        ("MPI_Datatype *", _) if frees => &[("(newtype = MPI_DATATYPE_NULL, &newtype)", "TYPE")],
        ("MPI_Op", _) if f == "MPI_Op_commutative" => &[("MPI_OP_NULL", "OP")],
        ("MPI_Op", _) => &[("MPI_OP_NULL", "OP"), ("MPI_REPLACE", "OP")],
        ("MPI_Op *", _) => &[("(op = MPI_OP_NULL, &op)", "OP"), ("(op = MPI_SUM, &op)", "OP")],
        ("MPI_Group", _) => &[("MPI_GROUP_NULL", "GROUP")],
        ("MPI_Group *", _) if frees => &[("(newgroup = MPI_GROUP_NULL, &newgroup)", "GROUP")],
        ("MPI_Info", _) if f.starts_with("MPI_Info_") => &[("MPI_INFO_NULL", "INFO")],
        ("MPI_Info *", _) if frees => &[("(newinfo = MPI_INFO_NULL, &newinfo)", "INFO")],
        ("MPI_Errhandler", _) => &[("MPI_ERRHANDLER_NULL", "ERRHANDLER")],
        ("MPI_Errhandler *", _) if frees => {
            &[("(handler = MPI_ERRHANDLER_NULL, &handler)", "ERRHANDLER")]
        }
        ("MPI_Session", _) => &[("MPI_SESSION_NULL", "SESSION")],
        ("MPI_Session *", _) if f.ends_with("finalize") => {
            &[("(newsession = MPI_SESSION_NULL, &newsession)", "SESSION")]
        }
        ("MPI_Message *", _) if !f.contains("robe") => {
            &[("(message = MPI_MESSAGE_NULL, &message)", "REQUEST")]
        }
        ("MPI_Request *", _) if matches!(f, "MPI_Start" | "MPI_Cancel" | "MPI_Request_free") => {
            &[("(request = MPI_REQUEST_NULL, &request)", "REQUEST")]
        }
        (_, "buf" | "buffer" | "sendbuf" | "recvbuf" | "inbuf" | "outbuf" | "inoutbuf") => {
            if name == "recvbuf" && function.chapter.starts_with("Collective") {
                &[("MPI_BOTTOM", "BUFFER"), ("a", "BUFFER")]
            } else {
                &[("MPI_BOTTOM", "BUFFER")]
            }
        }
        (_, "key") if f == "MPI_Info_delete" => {
            &[("\"\"", "INFO_KEY"), ("long_key", "INFO_KEY"), ("\"other\"", "INFO_NOKEY")]
        }
        (_, "key") if is_input => &[("\"\"", "INFO_KEY"), ("long_key", "INFO_KEY")],
        (_, "value") if is_input => &[("long_value", "INFO_VALUE")],
        (_, "datarep") => &[("\"other\"", "ARG")],
        (_, "pset_name") if is_input => &[("\"other\"", "ARG")],
        ("int *", "comm_keyval" | "keyval" | "type_keyval") => {
            &[("(newkey = MPI_KEYVAL_INVALID, &newkey)", "KEYVAL")]
        }
        (_, "comm_keyval" | "keyval") if f.contains("get") => &[("MPI_KEYVAL_INVALID", "KEYVAL")],
        (_, "comm_keyval" | "keyval") => {
            &[("MPI_KEYVAL_INVALID", "KEYVAL"), ("MPI_TAG_UB", "KEYVAL")]
        }
        (_, "type_keyval") => &[("MPI_KEYVAL_INVALID", "KEYVAL")],
        _ if !brackets.is_empty() && is_input => {
            let class = match name {
                _ if name.contains("count") || name.contains("blocklength") => "COUNT",
                "ranks" | "ranks1" | "sources" | "destinations" => "RANK",
                "dims" => "DIMS",
                "array_of_gsizes" | "array_of_sizes" | "array_of_subsizes"
                | "array_of_distribs" | "array_of_psizes" | "degrees" | "index" | "edges" => "ARG",
                _ => return Vec::new(),
            };
            return vec![(format!("negatives{}", suffix(kind)), class)];
        }
        _ if kind.ends_with('*') || !brackets.is_empty() => &[],
        (_, "dest" | "source") if f.starts_with("MPI_Status") => &[],
        (_, "dest" | "source") => &[("9", "RANK"), ("-7", "RANK")],
        (_, "rank") if !is_datatype => &[("9", "RANK"), ("-7", "RANK")],
        (_, "root") => &[("9", "ROOT"), ("-7", "ROOT")],
        (_, "local_leader") => &[("9", "RANK")],
        (_, "tag" | "sendtag" | "recvtag") if f.starts_with("MPI_Status") => &[],
        (_, "tag" | "sendtag" | "recvtag") => &[("-5", "TAG")],
        (_, "ndims") if !is_datatype => &[("-1", "DIMS")],
        (_, "blocklength") => &[("-1", "COUNT")],
        (_, "errorclass") => &[("-99", "ARG")],
        (_, "errorcode") if f.contains("call") => &[],
        (_, "errorcode") => &[("-99", "ARG")],
        (_, "color") => &[("-5", "ARG")],
        (_, "split_type") => &[("-4711", "ARG")],
        _ if name.contains("count") && !name.starts_with("max_") => &[("-1", "COUNT")],
        (_, "n" | "partitions" | "size" | "rank" | "ndims" | "nnodes" | "direction" | "order")
        | (_, "outsize" | "insize" | "maxdims" | "maxindex" | "maxedges" | "maxneighbors")
        | (_, "maxindegree" | "maxoutdegree" | "indegree" | "outdegree" | "valuelen")
        | (_, "max_integers" | "max_addresses" | "max_large_counts" | "max_datatypes") => {
            &[("-1", "ARG")]
        }
        _ => &[],
    };
    list.iter().map(|(text, class)| ((*text).to_owned(), *class)).collect()
}

/// Pointers that mean something where they are null, or where the other arguments ask for nothing.
fn may_be_null(kind: &str, name: &str) -> bool {
    kind.ends_with("void *") || kind.contains("MPI_Status *") || name.contains("attribute_val")
}

/// The program and its cases, in their order: wrong arguments, or (`nulls`) null pointers for whatever is one.
pub fn program(functions: &[Function], nulls: bool) -> (String, Vec<Case>) {
    let (mut text, mut cases) = (String::from("#include \"arguments.h\"\n"), Vec::new());
    for function in functions.iter().filter(|function| !is_left_out(function)) {
        let f = function.name.as_str();
        let parameters: Vec<(&str, &str, &str)> = function
            .parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::More => ("...", "", ""),
                Parameter::Named { kind, name, brackets } => (&**kind, &**name, &**brackets),
            })
            .collect();
        let mut call = |at: Option<usize>, value: &str, class| {
            let argument = |(index, (kind, name, brackets)): (usize, &(&str, &str, &str))| {
                if at == Some(index) { value.to_owned() } else { good(f, kind, name, brackets) }
            };
            let arguments: Vec<_> = parameters.iter().enumerate().map(argument).collect();
            let makes = parameters.iter().any(|(kind, ..)| *kind == "MPI_Request *");
            let end = if f.contains("_init") {
                "MPI_Request_free(&request)"
            } else {
                "MPI_Wait(&request, MPI_STATUS_IGNORE)"
            };
            let end = if makes && f != "MPI_Session_init" { end } else { "(void)0" };
            writeln!(
                text,
                "static int case_{}(void) {{\n  int code = {f}({});\n  if (code == MPI_SUCCESS && request != MPI_REQUEST_NULL) {end};\n  return code;\n}}",
                cases.len(),
                arguments.join(", ")
            )
            .expect("a string can be written to");
            let name = at.map_or("", |index| parameters[index].1);
            let shown = value.trim_start_matches('(').split(',').next().unwrap_or(value);
            let wrong = at.map_or(String::new(), |_| format!("{name}: {shown}"));
            cases.push(Case { function: f.to_owned(), wrong, class });
        };
        if nulls {
            for (index, (kind, name, brackets)) in parameters.iter().enumerate() {
                let is_pointer = kind.ends_with('*') || !brackets.is_empty();
                if is_pointer && !may_be_null(kind, name) {
                    call(Some(index), "NULL", "");
                }
            }
            continue;
        }
        if !is_always_wrong(f) {
            call(None, "", "MPI_SUCCESS");
        }
        for (index, (kind, name, brackets)) in parameters.iter().enumerate() {
            for (value, class) in wrong(function, kind, name, brackets) {
                call(Some(index), &value, class);
            }
        }
    }
    let list: Vec<String> = (0..cases.len()).map(|index| format!("case_{index}")).collect();
    writeln!(text, "static int (*const CASES[])(void) = {{{}}};", list.join(", "))
        .expect("a string can be written to");
    text.push_str("int main(int argc, char **argv) { return run(argc, argv, CASES, sizeof CASES / sizeof *CASES); }\n");
    (text, cases)
}

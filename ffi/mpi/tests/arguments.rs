//! Arguments that are wrong: every function of the standard that can be called by a process alone, once for each argument that can be
//! wrong. Which error class comes back follows from the parameter ([`generate`]), and is the one of the other library of the
//! standard ABI too, where that is installed and checks (`ci/peers`: MPICH's). And calls before `MPI_Init` and after `MPI_Finalize`.

#[path = "arguments/generate.rs"]
mod generate;

mod common;

use common::{compile_source, root, run};
use generate::Case;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

/// Where the other library is of no help: part of a function's name, and of what is wrong. It crashes or ends the program, has no
/// check, or has a class that says less.
const ORACLE_DIFFERS: [(&str, &str); 26] = [
    // It crashes with MPI_PROC_NULL.
    ("MPI_Precv_init", ""),
    ("MPI_Psend_init", ""),
    // No check of what is packed, and of the representation.
    ("ack", "buf: "),
    ("ack_external", "size: "),
    ("ack_external", "datarep: "),
    // Operations are matched with datatypes before these are looked at; counts only where there is something to send.
    ("educe", "datatype: "),
    ("educe", "count: "),
    ("can", "datatype: "),
    ("can", "count: "),
    ("Reduce_local", "buf: "),
    // No check, a crash, or only MPI_ERR_ARG or MPI_ERR_OTHER.
    ("MPI_Type_create_darray", "rank: "),
    ("MPI_Type_create_darray", "array_of_"),
    ("MPI_Type_create_subarray", "array_of_"),
    ("MPI_Comm_split", "color: "),
    ("MPI_Group_range_", "ranges: "),
    ("MPI_Cart_create", "dims: "),
    ("MPI_Cart_map", "dims: "),
    ("MPI_Dims_create", "ndims: "),
    ("MPI_Dist_graph_create", "sources: "),
    ("MPI_Dist_graph_create", "degrees: "),
    ("MPI_Dist_graph_create", "destinations: "),
    ("MPI_Graph_create", "nnodes: "),
    ("MPI_Graph_map", ""),
    ("MPI_Add_error_code", ""),
    ("MPI_Error_", "errorcode: "),
    ("MPI_Info_", "info: "),
];

/// What may be called before `MPI_Init` and after `MPI_Finalize` (MPI 5.0, §11.4.1, and what stands on a status alone).
const EVER: [&str; 9] = [
    "MPI_Info_",
    "MPI_Error_",
    "MPI_Add_error_",
    "MPI_Status_",
    "MPI_Get_version",
    "MPI_Get_library_version",
    "MPI_Get_hw_resource_info",
    "MPI_Initialized",
    "MPI_Finalized",
];

fn program(name: &str, nulls: bool) -> (PathBuf, Vec<Case>) {
    let list = root().join("ffi/mpi/abi/functions.h");
    let list = std::fs::read_to_string(list).expect("the list is there");
    let functions = ironweave_abi_list::parse(&list).expect("the list of functions");
    let (text, cases) = generate::program(&functions, nulls);
    assert!(cases.len() > if nulls { 500 } else { 2_000 }, "{} calls are few", cases.len());
    let folder = root().join("ffi/mpi/tests/c");
    let include = format!("-I{}", folder.to_str().expect("a path of ours"));
    (compile_source(name, &text, &[&include, "-O0"]), cases)
}

/// What each call answered, by its number.
fn answers(mut command: Command, arguments: &[String]) -> HashMap<usize, i32> {
    command.args(arguments);
    let output = run(command, "the calls");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().last().unwrap_or_default().to_owned();
    assert!(output.status.success(), "{}: after {last:?}: {errors}", output.status);
    let line = |line: &str| {
        let (number, answer) = line.split_once(' ')?;
        Some((number.parse().ok()?, answer.parse().ok()?))
    };
    said.lines().filter_map(line).collect()
}

/// The error classes of `mpi.h`, by their numbers.
fn classes() -> HashMap<i32, String> {
    let header = root().join("ffi/mpi/include/mpi.h");
    let header = std::fs::read_to_string(header).expect("the header is there");
    let words = header.lines().filter_map(|line| {
        let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = words.find(|word| word.starts_with("MPI_ERR_") || *word == "MPI_SUCCESS")?;
        let number = words.find(|word| !word.is_empty())?.parse().ok()?;
        Some((number, name.to_owned()))
    });
    let classes: HashMap<_, _> = words.collect();
    assert!(classes.len() > 55, "the header was not understood: {classes:?}");
    classes
}

#[test]
fn every_wrong_argument_has_its_class() {
    let (program, cases) = program("arguments", false);
    let classes = classes();
    let asked = |answers: &HashMap<usize, i32>, number: usize| {
        let answer = answers.get(&number)?;
        Some(classes.get(answer).cloned().unwrap_or_else(|| answer.to_string()))
    };
    let wanted = |case: &Case| match case.class {
        "MPI_SUCCESS" => "MPI_SUCCESS".to_owned(),
        class => format!("MPI_ERR_{class}"),
    };
    let ours = answers(Command::new(&program), &[]);
    let mut different = Vec::new();
    let check = |answers, who: &str, number, case: &Case, different: &mut Vec<String>| {
        let answer = asked(answers, number).unwrap_or_else(|| "none".into());
        if answer != wanted(case) {
            let Case { function, wrong, .. } = case;
            different.push(format!("{function} {wrong}: {who} {answer}, not {}", wanted(case)));
        }
    };
    for (number, case) in cases.iter().enumerate() {
        check(&ours, "is", number, case, &mut different);
    }
    let oracle = root().join(".venv/mpich/lib");
    if oracle.join("libmpi_abi.so.1").exists() {
        let differs = |case: &Case| {
            ORACLE_DIFFERS.iter().any(|(function, wrong)| {
                case.function.contains(function) && case.wrong.contains(wrong)
            })
        };
        let out: Vec<_> = (0..cases.len()).filter(|number| differs(&cases[*number])).collect();
        let arguments: Vec<_> = out.iter().map(ToString::to_string).collect();
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", oracle);
        let theirs = answers(command, &arguments);
        for (number, case) in cases.iter().enumerate().filter(|(number, _)| !out.contains(number)) {
            check(&theirs, "the other library has", number, case, &mut different);
        }
        assert!(theirs.len() > cases.len() * 8 / 10, "the other library was not asked much");
    } else {
        println!("SKIP abi_oracle_arguments_1: MPICH's libmpi_abi is not installed (ci/setup)");
    }
    assert!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    std::fs::remove_file(program).expect("it was just made");
}

/// Makes every call that is right at other times, each in a process of its own. Which of them are neither an error nor allowed?
fn unreported(when: &str, allowed: &[&str]) -> Vec<String> {
    let (program, cases) = program(when, false);
    let mut arguments = vec![when.to_owned()];
    let right = (0..cases.len()).filter(|number| cases[*number].wrong.is_empty());
    arguments.extend(right.map(|number| number.to_string()));
    let ended = answers(Command::new(&program), &arguments);
    assert_eq!(ended.len(), arguments.len() - 1);
    std::fs::remove_file(program).expect("it was just made");
    let allowed = |function: &str| allowed.iter().any(|name| function.starts_with(name));
    let unreported = ended.iter().filter_map(|(number, ended)| {
        let function = &cases[*number].function;
        let reported = *ended > 0 || *ended == 0 && allowed(function);
        (!reported).then(|| format!("{function}: {ended}"))
    });
    unreported.collect()
}

#[test]
fn calls_before_init_are_reported() {
    let allowed =
        [&EVER[..], &["MPI_Session_init", "MPI_Session_finalize", "MPI_Pcontrol"]].concat();
    let unreported = unreported("before", &allowed);
    assert!(unreported.is_empty(), "not reported before MPI_Init: {unreported:?}");
}

#[test]
fn calls_after_finalize_are_reported() {
    let unreported = unreported("after", &[&EVER[..], &["MPI_Errhandler_free"]].concat());
    assert!(unreported.is_empty(), "not reported after MPI_Finalize: {unreported:?}");
}

/// A null pointer where a result or an array is asked for is no crash.
#[test]
fn null_pointers_are_refused() {
    let (program, cases) = program("nulls", true);
    let mut arguments = vec!["apart".to_owned()];
    arguments.extend((0..cases.len()).map(|number| number.to_string()));
    let ended = answers(Command::new(&program), &arguments);
    assert_eq!(ended.len(), cases.len());
    let mut crashed: Vec<_> = ended.iter().filter(|(_, ended)| **ended < 0).collect();
    crashed.sort();
    let told = |(number, signal): (&usize, &i32)| {
        format!("{} {}: signal {}", cases[*number].function, cases[*number].wrong, -signal)
    };
    let crashed: Vec<_> = crashed.into_iter().map(told).collect();
    assert!(crashed.is_empty(), "{} of {}:\n{}", crashed.len(), cases.len(), crashed.join("\n"));
    std::fs::remove_file(program).expect("it was just made");
}

//! `docs/conformance.md`: which functions are done, by chapter.

use crate::Function;
use std::collections::BTreeSet;
use std::fmt::Write;

/// The page, for the functions of the list and the names that are defined.
pub fn conformance(functions: &[Function], defined: &BTreeSet<String>) -> String {
    let done = |function: &&Function| defined.contains(&function.name);
    let mut out = String::from(
        "# Conformance\n\n\
         Every function of the MPI 5.0 standard ABI is exported by `libmpi_abi.so.1` as `MPI_…` and `PMPI_…`. One that is not done\n\
         raises `MPI_ERR_UNSUPPORTED_OPERATION` through the error handler of its object (functions of the tool interface return\n\
         `MPI_T_ERR_NOT_SUPPORTED`). This page is made by `ci/abi` from `ffi/mpi/abi/functions.h` and the sources; `ci/test` checks\n\
         that it is current. Large-count forms (`_c`) are functions of their own.\n\n\
         | Chapter | Functions | Done | Not done |\n|---|---|---|---|\n",
    );
    let chapters = chapters(functions);
    let mut total = (0, 0);
    for chapter in &chapters {
        let all: Vec<_> = of(functions, chapter).collect();
        let ready = all.iter().copied().filter(done).count();
        total = (total.0 + all.len(), total.1 + ready);
        let _ = writeln!(out, "| {chapter} | {} | {ready} | {} |", all.len(), all.len() - ready);
    }
    let _ = writeln!(
        out,
        "| **all** | **{}** | **{}** | **{}** |",
        total.0,
        total.1,
        total.0 - total.1
    );
    for chapter in &chapters {
        let _ = writeln!(out, "\n## {chapter}");
        let (ready, open): (Vec<_>, Vec<_>) = of(functions, chapter).partition(done);
        paragraph(&mut out, "Done", &ready);
        paragraph(&mut out, "Not done", &open);
    }
    out
}

fn chapters(functions: &[Function]) -> Vec<&str> {
    let mut chapters: Vec<&str> = Vec::new();
    for function in functions {
        if !chapters.contains(&function.chapter.as_str()) {
            chapters.push(&function.chapter);
        }
    }
    chapters
}

fn of<'a>(functions: &'a [Function], chapter: &'a str) -> impl Iterator<Item = &'a Function> {
    functions.iter().filter(move |function| function.chapter == chapter)
}

/// One line a function, so that changes of different people do not meet; the large-count form beside
/// the small one where both are in the same state.
fn paragraph(out: &mut String, title: &str, functions: &[&Function]) {
    if functions.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}:\n");
    for function in functions {
        let has = |name: &str| functions.iter().any(|other| other.name == name);
        if function.small_form().is_some_and(has) {
            continue;
        }
        let and_large = if has(&format!("{}_c", function.name)) { ", `_c`" } else { "" };
        let old = match &function.deprecated {
            Some(version) => format!(" (deprecated by MPI {version})"),
            None => String::new(),
        };
        let _ = writeln!(out, "- `{}`{and_large}{old}", function.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_counts_and_lists() {
        let text = "/* chapter: A */\nint MPI_X(void);\nint MPI_X_c(void);\nint MPI_Y(void);\nint MPI_Y_c(void);\n\
                    /* extension: B */\nint MPIX_Z(void);\n";
        let functions = crate::parse(text).unwrap();
        let defined = ["MPI_X", "MPI_X_c", "MPI_Y"].map(str::to_owned).into();
        let page = conformance(&functions, &defined);
        assert!(
            page.contains(
                "| A | 4 | 3 | 1 |\n| B | 1 | 0 | 1 |\n| **all** | **5** | **3** | **2** |"
            ),
            "{page}"
        );
        assert!(
            page.contains("Done:\n\n- `MPI_X`, `_c`\n- `MPI_Y`\n\nNot done:\n\n- `MPI_Y_c`\n"),
            "{page}"
        );
    }
}

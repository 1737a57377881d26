//! The list of the C library's functions, `ffi/mpi/abi/functions.h`, and everything that is made from it: stubs for
//! functions that nobody has written yet (`stubs`, for the library's build script), the installed headers (`headers`), and
//! the table of what is done (`table`). So an exported name, its prototype and what is said of it cannot disagree.
//!
//! Reads C prototypes of the simple form that the list has, and looks for definitions in Rust sources by their words; it
//! understands neither language.

use std::collections::BTreeSet;
use std::path::Path;

pub mod headers;
pub mod stubs;
pub mod table;

/// A function of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, `MPI_…` or `MPIX_…`.
    pub name: String,
    /// The type it returns, as written in C.
    pub returns: String,
    /// Its parameters, as written in C; none for `void`.
    pub parameters: Vec<Parameter>,
    /// The chapter it stands in.
    pub chapter: String,
    /// Whether it goes beyond the standard.
    pub extension: bool,
    /// The version that deprecated it.
    pub deprecated: Option<String>,
}

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// `...`: whatever a caller adds.
    More,
    /// One with a name.
    Named {
        /// Its type without name and brackets, as written in C.
        kind: String,
        /// Its name.
        name: String,
        /// Brackets after the name: `[]`, `[][3]` or nothing.
        brackets: String,
    },
}

impl Function {
    /// The prototype in C, under the name `name`.
    pub fn prototype(&self, name: &str) -> String {
        let parameters: Vec<String> = self.parameters.iter().map(Parameter::c).collect();
        let parameters = match parameters.is_empty() {
            true => "void".to_owned(),
            false => parameters.join(", "),
        };
        let gap = if self.returns.ends_with('*') { "" } else { " " };
        format!("{}{gap}{name}({parameters});", self.returns)
    }

    /// The function whose large-count form this is, if it is one.
    pub fn small_form(&self) -> Option<&str> {
        self.name.strip_suffix("_c")
    }
}

impl Parameter {
    fn c(&self) -> String {
        match self {
            Parameter::More => "...".to_owned(),
            Parameter::Named { kind, name, brackets } => {
                let gap = if kind.ends_with('*') { "" } else { " " };
                format!("{kind}{gap}{name}{brackets}")
            }
        }
    }

    fn parse(text: &str) -> Result<Parameter, String> {
        let text = text.trim();
        if text == "..." {
            return Ok(Parameter::More);
        }
        let (declared, brackets) = match text.find('[') {
            Some(at) => (&text[..at], &text[at..]),
            None => (text, ""),
        };
        let start = declared
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .ok_or_else(|| format!("{text:?} is not a type and a name"))?;
        let (kind, name) = declared.split_at(start + 1);
        if name.is_empty() || kind.trim().is_empty() {
            return Err(format!("{text:?} is not a type and a name"));
        }
        Ok(Parameter::Named {
            kind: kind.trim().to_owned(),
            name: name.to_owned(),
            brackets: brackets.to_owned(),
        })
    }
}

/// Reads the list.
///
/// # Errors
/// In words, with the line: what is no prototype, a name twice, a function before the first chapter.
pub fn parse(text: &str) -> Result<Vec<Function>, String> {
    let mut functions: Vec<Function> = Vec::new();
    let mut names = BTreeSet::new();
    let mut chapter: Option<(String, bool)> = None;
    for (index, line) in text.lines().enumerate() {
        let wrong = |why: String| format!("functions.h:{}: {why}", index + 1);
        if let Some(name) = heading(line, "chapter") {
            chapter = Some((name, false));
        } else if let Some(name) = heading(line, "extension") {
            chapter = Some((name, true));
        } else if line.contains('(') && !line.starts_with([' ', '/']) {
            let (name, extension) =
                chapter.clone().ok_or_else(|| wrong("no chapter yet".to_owned()))?;
            let function = prototype(line, name, extension).map_err(wrong)?;
            if !names.insert(function.name.clone()) {
                return Err(wrong(format!("{} stands there twice", function.name)));
            }
            functions.push(function);
        }
    }
    Ok(functions)
}

fn heading(line: &str, kind: &str) -> Option<String> {
    let text = line.strip_prefix("/* ")?.strip_prefix(kind)?.strip_prefix(": ")?;
    Some(text.strip_suffix(" */")?.to_owned())
}

fn prototype(line: &str, chapter: String, extension: bool) -> Result<Function, String> {
    let (declared, rest) = line.split_once('(').ok_or("no parameters")?;
    let (parameters, comment) = rest.split_once(");").ok_or("no `);`")?;
    let start =
        declared.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').ok_or("no return type")?;
    let (returns, name) = declared.split_at(start + 1);
    if !name.starts_with("MPI_") && !name.starts_with("MPIX_") {
        return Err(format!("{name:?} is not a name of MPI"));
    }
    let parameters = match parameters.trim() {
        "void" => Vec::new(),
        some => some.split(',').map(Parameter::parse).collect::<Result<_, _>>()?,
    };
    let deprecated = comment
        .trim()
        .strip_prefix("/* deprecated by MPI ")
        .and_then(|version| version.strip_suffix(" */"));
    Ok(Function {
        name: name.to_owned(),
        returns: returns.trim().to_owned(),
        parameters,
        chapter,
        extension,
        deprecated: deprecated.map(str::to_owned),
    })
}

/// The functions of the list that the Rust sources under `folder` define: those whose name stands anywhere in the code,
/// outside of comments and strings. Macros may make them, and nothing else in the library has these names.
///
/// # Errors
/// In words: a file that cannot be read, or `fn MPI_…` of a name that is not in the list.
pub fn defined(folder: &Path, functions: &[Function]) -> Result<BTreeSet<String>, String> {
    let known: BTreeSet<&str> = functions.iter().map(|function| function.name.as_str()).collect();
    let mut names = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable = |error: std::io::Error| format!("{}: {error}", folder.display());
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = std::fs::read_to_string(&path).map_err(unreadable)?;
                definitions(&source, &known, &mut names).map_err(|name| {
                    format!("{}: fn {name} is not in functions.h", path.display())
                })?;
            }
        }
    }
    Ok(names)
}

/// Adds what a source defines; the error is a function that is not known.
fn definitions(
    source: &str,
    known: &BTreeSet<&str>,
    names: &mut BTreeSet<String>,
) -> Result<(), String> {
    let mut after_fn = false;
    for word in words(source) {
        if known.contains(word) {
            names.insert(word.to_owned());
        } else if after_fn && (word.starts_with("MPI_") || word.starts_with("MPIX_")) {
            return Err(word.to_owned());
        }
        after_fn = word == "fn";
    }
    Ok(())
}

/// The identifiers and numbers of Rust code, without comments and strings.
fn words(code: &str) -> impl Iterator<Item = &str> {
    let mut rest = code;
    std::iter::from_fn(move || {
        loop {
            let first = rest.chars().next()?;
            let length = if rest.starts_with("//") {
                rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("/*") {
                rest.find("*/").map_or(rest.len(), |end| end + 2)
            } else if first == '"' {
                string(rest)
            } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") {
                3
            } else if first.is_ascii_alphanumeric() || first == '_' {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let (word, after) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
                rest = after;
                return Some(word);
            } else {
                first.len_utf8()
            };
            rest = &rest[length..];
        }
    })
}

/// The length of the string that `text` begins with, its quotes included.
fn string(text: &str) -> usize {
    let mut escaped = false;
    let end = text[1..].find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prototype_is_read_and_written() {
        let text = "/* chapter: One */\n\
                    int MPI_Foo(const void *buf, int counts[], int ranges[][3], ...);\n\
                    double MPI_Wtime(void);\n\
                    /* extension: Two */\n\
                    int MPIX_Bar(MPI_Comm comm); /* deprecated by MPI 2.0 */\n";
        let functions = parse(text).unwrap();
        assert_eq!(functions.len(), 3);
        let prototypes: Vec<_> =
            functions.iter().map(|function| function.prototype(&function.name)).collect();
        assert_eq!(
            prototypes,
            [
                "int MPI_Foo(const void *buf, int counts[], int ranges[][3], ...);",
                "double MPI_Wtime(void);",
                "int MPIX_Bar(MPI_Comm comm);"
            ]
        );
        assert_eq!((functions[0].chapter.as_str(), functions[0].extension), ("One", false));
        assert_eq!((functions[2].chapter.as_str(), functions[2].extension), ("Two", true));
        assert_eq!(functions[2].deprecated.as_deref(), Some("2.0"));
    }

    #[test]
    fn what_is_wrong_in_the_list_is_told_with_its_line() {
        let cases = [
            ("int MPI_A(void);", "functions.h:1: no chapter yet"),
            ("/* chapter: X */\nint MPI_A(void);\nint MPI_A(void);", "functions.h:3"),
            ("/* chapter: X */\nint Foo(void);", "not a name of MPI"),
            ("/* chapter: X */\nint MPI_A(int);", "not a type and a name"),
            ("/* chapter: X */\nint MPI_A(int a)", "no `);`"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn definitions_are_found_by_their_words() {
        let known =
            ["MPI_Send", "MPI_Send_c", "MPI_Recv", "MPIX_Comm_revoke", "MPI_Wtime", "MPI_Bsend"];
        let source = "mpi! { fn MPI_Send / MPI_Send_c(buf: *const c_void) on comm { fail(\"MPI_Recv\") } }\n\
                      // MPI_Recv\n/* MPI_Recv */ clocks! { MPI_Wtime \"PMPI_\\\"Wtime\" = 1; } '\"' MPI_Bsend\n\
                      fn MPIX_Comm_revoke(comm: MPI_Comm) {}";
        let mut names = BTreeSet::new();
        definitions(source, &known.into(), &mut names).unwrap();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        assert_eq!(names, ["MPIX_Comm_revoke", "MPI_Bsend", "MPI_Send", "MPI_Send_c", "MPI_Wtime"]);
        let strange = definitions("fn MPI_Sned() {}", &known.into(), &mut BTreeSet::new());
        assert_eq!(strange, Err("MPI_Sned".to_owned()));
    }

    #[test]
    fn our_list_can_be_read_and_has_the_large_forms_next_to_the_small() {
        let functions = parse(include_str!("../../abi/functions.h")).unwrap();
        assert!(functions.len() > 690, "{}", functions.len());
        for pair in functions.windows(2) {
            if let Some(small) = pair[1].small_form() {
                assert_eq!(small, pair[0].name);
            }
        }
    }
}

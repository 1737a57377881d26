//! `--mca` as other launchers have it: our parameters are set, and what only others know is told and left out, because
//! scripts pass it on to whatever MPI there is.

use crate::params::table::BTLS;
use crate::params::{Kind, Params, Source};

/// What becomes of a pair.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken {
    /// What is set.
    pub pair: Option<(String, String)>,
    /// What is said.
    pub note: Option<String>,
}

/// Takes one pair.
///
/// # Errors
/// In words: a parameter of ours with an impossible value.
pub fn take(name: &str, value: &str) -> Result<Taken, String> {
    let mut params = Params::default();
    let Some(setting) = params.setting(name) else {
        let known = params.set(name, value, Source::CommandLine).err();
        let why = known.map(|error| error.to_string()).unwrap_or_default();
        return Ok(Taken { pair: None, note: Some(format!("{why}; left out")) });
    };
    let (value, note) = match setting.def.kind {
        Kind::Selection(BTLS) => transports(value),
        Kind::Choice(words) if name == "pml" && !words.contains(&value) => {
            let note = format!("--mca pml {value}: there is only {}; left out", words.join(", "));
            return Ok(Taken { pair: None, note: Some(note) });
        }
        _ => (value.to_owned(), None),
    };
    if value.is_empty() && note.is_some() {
        return Ok(Taken { pair: None, note });
    }
    params.set(name, &value, Source::CommandLine).map_err(|error| error.to_string())?;
    Ok(Taken { pair: Some((name.to_owned(), value)), note })
}

/// A selection of transports with the names we know; others' names for shared memory are ours.
fn transports(value: &str) -> (String, Option<String>) {
    let (not, list) = match value.trim().strip_prefix('^') {
        Some(list) => ("^", list),
        None => ("", value.trim()),
    };
    let (mut kept, mut strange): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "sm" | "vader" => kept.push("shm"),
            known if BTLS.contains(&known) => kept.push(known),
            other => strange.push(other),
        }
    }
    kept.dedup();
    let note = (!strange.is_empty()).then(|| {
        format!(
            "--mca btl: there is no {}; left out ({} are there)",
            strange.join(", "),
            BTLS.join(", ")
        )
    });
    match kept.is_empty() {
        true => (String::new(), note),
        false => (format!("{not}{}", kept.join(",")), note),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_parameters_are_told_and_left_out() {
        // name, value, what is set, a word of what is said
        let cases: &[(&str, &str, Option<&str>, &str)] = &[
            ("btl", "tcp,self", Some("tcp,self"), ""),
            ("btl", "vader,self", Some("shm,self"), ""),
            ("btl", "^openib", None, "no openib"),
            ("btl", "^openib,tcp", Some("^tcp"), "no openib"),
            ("btl", "self,sm,smcuda", Some("self,shm"), "no smcuda"),
            ("pml", "ob1", Some("ob1"), ""),
            ("pml", "ucx", None, "pml ucx"),
            ("pml_ucx_tls", "any", None, "pml_ucx_tls"),
            ("orte_base_help_aggregate", "0", None, "left out"),
            ("btl_tcp_links", "2", Some("2"), ""),
            ("btl_tcp_link", "2", None, "did you mean \"btl_tcp_links\"?"),
        ];
        for (name, value, set, word) in cases {
            let taken = take(name, value).unwrap();
            let expected = set.map(|set| ((*name).to_owned(), set.to_owned()));
            assert_eq!(taken.pair, expected, "{name} {value}");
            let note = taken.note.unwrap_or_default();
            assert_eq!(note.is_empty(), word.is_empty(), "{name} {value}: {note}");
            assert!(note.contains(word), "{name} {value}: {note}");
        }
        let error = take("btl_tcp_links", "many").unwrap_err();
        assert!(error.contains("whole number"), "{error}");
    }
}

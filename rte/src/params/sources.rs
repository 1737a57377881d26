//! Where values come from: the TOML files, the environment, and `--mca` as the launcher hands it
//! on. Reads files and environment once, at start; an unknown name in any of them is an error.

use super::table::INTERNAL;
use super::{ParamError, Params, Source};
use std::path::{Path, PathBuf};

/// The prefix of environment variables that set parameters.
pub const PREFIX: &str = "IRONWEAVE_";
/// How the launcher hands `--mca` to ranks: `name=value` lines.
pub const MCA_VARIABLE: &str = "IRONWEAVE_MCA";

/// All sources in order: the system's file, the user's file (or `IRONWEAVE_CONFIG` instead of
/// both), the environment, then `mca`.
///
/// # Errors
/// An unknown name or impossible value in any source, or an unreadable file.
pub fn load(mca: &[(String, String)]) -> Result<Params, ParamError> {
    let mut params = Params::default();
    for path in files() {
        file(&mut params, &path)?;
    }
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    environment(&mut params, variables)?;
    for (name, value) in mca {
        params.set(name, value, Source::CommandLine)?;
    }
    Ok(params)
}

/// As [`load`], with `--mca` as our launcher left it in the environment.
///
/// # Errors
/// As [`load`].
pub fn load_for_rank() -> Result<Params, ParamError> {
    let handed = std::env::var(MCA_VARIABLE).unwrap_or_default();
    let pairs = handed.lines().filter_map(|line| line.split_once('='));
    let mca: Vec<_> = pairs.map(|(name, value)| (name.into(), value.into())).collect();
    load(&mca)
}

/// `--mca` pairs as [`MCA_VARIABLE`] holds them.
pub fn hand_on(mca: &[(String, String)]) -> String {
    mca.iter().map(|(name, value)| format!("{name}={}\n", value.replace('\n', " "))).collect()
}

/// The files to read, least important first.
pub fn files() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("IRONWEAVE_CONFIG") {
        return if path.is_empty() { Vec::new() } else { vec![path.into()] };
    }
    let home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")));
    let system = PathBuf::from("/etc/ironweave.toml");
    let user = home.map(|directory| directory.join("ironweave.toml"));
    std::iter::once(system).chain(user).filter(|path| path.exists()).collect()
}

fn file(params: &mut Params, path: &Path) -> Result<(), ParamError> {
    let unusable = |reason: String| ParamError::File { path: path.display().to_string(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| unusable(error.to_string().trim_end().to_owned()))?;
    let mut flat = Vec::new();
    flatten("", &table, &mut flat).map_err(unusable)?;
    for (name, value) in flat {
        params.set(&name, &value, Source::File(path.to_owned()))?;
    }
    Ok(())
}

/// `[btl.tcp] links = 2` and `btl_tcp_links = 2` are the same.
fn flatten(
    prefix: &str,
    table: &toml::Table,
    flat: &mut Vec<(String, String)>,
) -> Result<(), String> {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}_{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, flat)?,
            other => flat.push((name.clone(), scalar(&name, other)?)),
        }
    }
    Ok(())
}

fn scalar(name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Boolean(value) => Ok(value.to_string()),
        toml::Value::Array(elements) => {
            let texts: Result<Vec<_>, _> = elements.iter().map(|e| scalar(name, e)).collect();
            Ok(texts?.join(","))
        }
        other => Err(format!("{name}: a {} is no parameter value", other.type_str())),
    }
}

fn environment(
    params: &mut Params,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<(), ParamError> {
    for (variable, value) in variables {
        let Some(name) = variable.strip_prefix(PREFIX) else { continue };
        if !INTERNAL.contains(&variable.as_str()) {
            params.set(&name.to_ascii_lowercase(), &value, Source::Environment)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_file(text: &str) -> Result<Params, ParamError> {
        let path = std::env::temp_dir()
            .join(format!("ironweave-params-{}", crate::secret::fresh_name().unwrap()));
        std::fs::write(&path, text).unwrap();
        let mut params = Params::default();
        let result = file(&mut params, &path);
        std::fs::remove_file(&path).unwrap();
        result.map(|()| params)
    }

    #[test]
    fn a_file_sets_flat_and_nested_names_and_lists() {
        let params = read_file(
            "btl = [\"tcp\", \"self\"]\npml_ob1_eager_limit = \"8k\"\n[btl_tcp]\nlinks = 2\n",
        )
        .unwrap();
        assert_eq!(params.selection("btl").chosen(), ["tcp", "self"]);
        assert_eq!(params.number("pml_ob1_eager_limit"), 8192);
        assert_eq!(params.number("btl_tcp_links"), 2);
        assert!(matches!(params.setting("btl").unwrap().source, Source::File(_)));
    }

    #[test]
    fn a_file_with_an_unknown_name_or_bad_toml_is_an_error_naming_the_file() {
        let unknown = read_file("btl_tcp_lniks = 2\n").unwrap_err().to_string();
        assert!(
            unknown.contains("ironweave-params") && unknown.contains("btl_tcp_links"),
            "{unknown}"
        );
        let bad = read_file("btl = \n").unwrap_err().to_string();
        assert!(bad.contains("ironweave-params"), "{bad}");
        assert!(read_file("btl = 1.5\n").unwrap_err().to_string().contains("float"));
    }

    #[test]
    fn the_environment_sets_known_names_and_refuses_unknown_ones() {
        let mut params = Params::default();
        let good = [
            ("IRONWEAVE_BTL", "^shm"),
            ("IRONWEAVE_LOG", "debug"),
            ("PATH", "/bin"),
            ("OMPI_MCA_btl", "x"),
        ];
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        environment(&mut params, good.into_iter().map(own)).unwrap();
        assert!(!params.selection("btl").allows("shm"));
        let bad = environment(&mut params, [("IRONWEAVE_BLT", "tcp")].into_iter().map(own));
        assert!(bad.unwrap_err().to_string().contains("did you mean \"btl\""));
    }

    #[test]
    fn what_the_launcher_hands_on_keeps_names_and_values() {
        let mca = [("btl".to_owned(), "tcp,self".to_owned()), ("a".into(), "x=y\nz".into())];
        assert_eq!(hand_on(&mca), "btl=tcp,self\na=x=y z\n");
    }
}

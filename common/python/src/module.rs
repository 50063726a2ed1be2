//! The name that a module goes by, told from the path of its file.

/// Suffix of a module's file.
const SOURCE: &str = ".py";
/// The file that stands for its directory.
const PACKAGE: &str = "__init__";
/// The file that runs where its directory is run.
const MAIN: &str = "__main__";
/// Directories that installers put packages into.
const INSTALLED: [&str; 2] = ["site-packages", "dist-packages"];
/// A file of a module that is built into the interpreter begins so, and ends with `>`.
const FROZEN: &str = "<frozen ";

/// The dotted name of the module that `file` holds: the whole one below a directory that the interpreter looks into by itself, elsewhere
/// the last part of it. `None`: it is no file.
pub fn module(file: &str) -> Option<String> {
    if let Some(name) = file.strip_prefix(FROZEN) {
        return name.strip_suffix('>').map(str::to_owned);
    }
    let path = file.strip_suffix(SOURCE)?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let root = parts.iter().rposition(|part| is_root(part));
    let mut parts = match root {
        Some(root) => parts[root + 1..].to_vec(),
        None => parts[parts.len().saturating_sub(2)..].to_vec(),
    };
    let last = *parts.last()?;
    if (last == PACKAGE || last == MAIN) && parts.len() > 1 {
        parts.pop();
    }
    let from = if root.is_some() { 0 } else { parts.len() - 1 };
    Some(parts[from..].join("."))
}

/// `python3.11` and the archive that stands for it have the standard library.
fn is_root(part: &str) -> bool {
    let version = part
        .strip_prefix("python3.")
        .map(|rest| rest.trim_end_matches('t'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_archive = |text: &str| text.strip_suffix(".zip").is_some_and(is_number);
    INSTALLED.contains(&part)
        || version.is_some_and(is_number)
        || part.strip_prefix("python3").is_some_and(is_archive)
}

#[cfg(test)]
mod tests {
    use super::module;

    #[test]
    fn modules_are_named_as_programs_import_them() {
        for (file, name) in [
            ("/usr/lib/python3.11/threading.py", Some("threading")),
            (
                "/usr/lib/python3.13t/asyncio/events.py",
                Some("asyncio.events"),
            ),
            (
                "/usr/lib/python311.zip/json/decoder.py",
                Some("json.decoder"),
            ),
            (
                "/usr/lib/python3/dist-packages/yaml/__init__.py",
                Some("yaml"),
            ),
            (
                "/opt/v/lib/python3.9/site-packages/flask/app.py",
                Some("flask.app"),
            ),
            (
                "/opt/v/lib/python3.9/site-packages/pip/__main__.py",
                Some("pip"),
            ),
            // Nobody knows here where the program's own packages begin.
            ("/srv/shop/views/orders.py", Some("orders")),
            ("/srv/shop/__init__.py", Some("shop")),
            ("/srv/shop/__main__.py", Some("shop")),
            ("app.py", Some("app")),
            ("__init__.py", Some("__init__")),
            ("/home/python3.d/app.py", Some("app")),
            (
                "<frozen importlib._bootstrap>",
                Some("importlib._bootstrap"),
            ),
            ("<string>", None),
            ("<frozen ", None),
            ("/usr/bin/pip", None),
            (".py", None),
            ("/.py", None),
            ("", None),
        ] {
            assert_eq!(module(file).as_deref(), name, "{file}");
        }
    }
}

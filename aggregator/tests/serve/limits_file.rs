//! A limits file that the log refuses.

use super::RESOURCE;
use super::support::{LIMITS, directory, run, serve};

#[test]
fn a_pipe_in_place_of_the_limits_file_holds_up_nothing() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let path = dir.path().join("limits.toml");
    std::fs::remove_file(&path).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.expect("mkfifo").success());
    served.signal("HUP");
    served.line_with("limits.toml: not a regular file");
    served.await_json("/v1/limits", |_| {
        served.metric("tollgate_limits_file_bad") == 1.0
    });
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
    // At a start the limits in the log apply.
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    assert_eq!(served.metric("tollgate_limits_file_bad"), 1.0);
    served.signal("TERM");
    assert_eq!(served.await_end().0.code(), Some(0));
    let key = [
        "serve",
        "--limits",
        "limits.toml",
        "--domain-key",
        "limits.toml",
    ];
    let (exit, _, why) = run(dir.path(), &key);
    assert!(exit == 66 && why.contains("not a regular file"), "{why}");
}

/// A row beside the document, which the document of the file cannot have beside it, is known only to the log.
#[test]
fn a_limits_file_that_the_log_refuses_is_bad() {
    let dir = directory(LIMITS);
    let mut served = serve(dir.path(), &[]);
    served.await_ready();
    let url = format!("http://{}", served.http);
    let set = [
        "limits",
        "set",
        RESOURCE,
        "--domain",
        "198.51.100.0/24",
        "--rate",
        "9/s",
    ];
    let (code, out, err) = run(
        dir.path(),
        &[&set[..], &["--reason", "x", "--url", &url]].concat(),
    );
    assert_eq!(code, 0, "{out}{err}");
    let path = dir.path().join("limits.toml");
    let networks = "addresses = { v4 = 16, v6 = 64 }\nrate = \"9/m\"\n";
    let text = format!("version = 1\nrules = 2\n[rate.\"{RESOURCE}\"]\n{networks}");
    std::fs::write(&path, text).expect("written");
    served.signal("HUP");
    let line = served.line_with("the limits file is not used");
    assert!(
        line.contains(RESOURCE) && line.contains("198.51.100.0/24") && !line.contains("Change("),
        "{line}"
    );
    assert_eq!(served.metric("tollgate_limits_file_bad"), 1.0);
    std::fs::write(&path, LIMITS).expect("written");
    served.signal("HUP");
    let is_good = || served.metric("tollgate_limits_file_bad") == 0.0;
    served.await_json("/v1/limits", |_| is_good());
    // A document that names the resource otherwise removes the rows; the log says how many.
    std::fs::write(&path, LIMITS.replace(RESOURCE, "misspelt")).expect("written");
    served.signal("HUP");
    let line = served.line_with("removes its 1 row ");
    assert!(line.contains("WARN") && line.contains(RESOURCE), "{line}");
}

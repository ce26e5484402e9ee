//! The user who gives a command, for the log.
//!
//! Knows nothing of commands. What stays true: there is always a name, if only a number.

use tollgate_server::serve::host_name;

/// Who gives a command, if `--by` does not say so: the user and the host.
pub(super) fn user_and_host() -> String {
    let named = std::env::var("USER").ok().filter(|name| !name.is_empty());
    let user = named.unwrap_or_else(|| {
        let uid = rustix::process::geteuid().as_raw();
        let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        name_of(uid, &passwd).unwrap_or_else(|| format!("uid {uid}"))
    });
    format!("{user}@{}", host_name())
}

/// The name of a user, who may be unknown to this machine's file: in a container, or with a directory service.
fn name_of(uid: u32, passwd: &str) -> Option<String> {
    let uid = uid.to_string();
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_name_is_found_by_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:100::/home/ann:/bin/sh\n";
        assert_eq!(name_of(1000, passwd).as_deref(), Some("ann"));
        assert_eq!(name_of(0, passwd).as_deref(), Some("root"));
        assert_eq!(name_of(100, passwd), None, "that is a group");
    }
}

//! ACLs, created and deleted by Kafka's protocol without authentication, as the open listener allows.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::fleet::WITHIN;

/// Operations by their numbers in Kafka's protocol.
pub const ALL: i8 = 2;
pub const READ: i8 = 3;
pub const WRITE: i8 = 4;
pub const CREATE: i8 = 5;
pub const DESCRIBE: i8 = 8;
pub const DESCRIBE_CONFIGS: i8 = 10;

pub const TOPIC: i8 = 2;
pub const GROUP: i8 = 3;

/// The name is that of one resource, or a prefix of many names.
pub const ITSELF: i8 = 3;
pub const BEGINNING: i8 = 4;

pub const DENY: i8 = 2;
pub const ALLOW: i8 = 3;

/// An ACL.
#[derive(Clone, Debug)]
pub struct Acl {
    pub user: String,
    pub kind: i8,
    pub name: String,
    pub pattern: i8,
    pub operation: i8,
    pub permission: i8,
}

impl Acl {
    /// An ACL that allows something on one resource.
    pub fn of(user: &str, (kind, name): (i8, &str), operation: i8) -> Self {
        Self {
            user: user.to_owned(),
            kind,
            name: name.to_owned(),
            pattern: ITSELF,
            operation,
            permission: ALLOW,
        }
    }

    /// The same for all names with this prefix.
    pub fn beginning(self) -> Self {
        Self {
            pattern: BEGINNING,
            ..self
        }
    }

    /// The same, denied.
    pub fn denied(self) -> Self {
        Self {
            permission: DENY,
            ..self
        }
    }

    fn write(&self, request: &mut Vec<u8>) {
        request.push(self.kind as u8);
        text(request, &self.name);
        request.push(self.pattern as u8);
        text(request, &format!("User:{}", self.user));
        text(request, "*");
        request.extend([self.operation as u8, self.permission as u8]);
    }
}

/// Creates ACLs.
pub fn make(open: &str, acls: &[Acl]) {
    change(open, 30, acls);
}

/// Deletes ACLs.
pub fn take(open: &str, acls: &[Acl]) {
    change(open, 31, acls);
}

fn change(open: &str, key: i16, acls: &[Acl]) {
    let count = i32::try_from(acls.len()).expect("few");
    let mut request = Vec::new();
    request.extend(key.to_be_bytes());
    request.extend(1i16.to_be_bytes());
    request.extend(7i32.to_be_bytes());
    text(&mut request, "tollgate");
    request.extend(count.to_be_bytes());
    acls.iter().for_each(|acl| acl.write(&mut request));
    let answer = ask(open, &request);
    // The correlation, the throttle time, the number of results; then each with its error.
    assert_eq!(answer[8..12], count.to_be_bytes());
    assert_eq!(answer[12..14], [0; 2], "{answer:?}");
}

fn text(request: &mut Vec<u8>, text: &str) {
    let length = i16::try_from(text.len()).expect("short");
    request.extend(length.to_be_bytes());
    request.extend(text.as_bytes());
}

/// The answer, without its length.
fn ask(open: &str, request: &[u8]) -> Vec<u8> {
    let mut broker = TcpStream::connect(open).expect("connects");
    broker.set_read_timeout(Some(WITHIN)).expect("set");
    let length = u32::try_from(request.len()).expect("short");
    broker.write_all(&length.to_be_bytes()).expect("sent");
    broker.write_all(request).expect("sent");
    let mut length = [0; 4];
    broker.read_exact(&mut length).expect("an answer");
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    broker.read_exact(&mut answer).expect("an answer");
    answer
}

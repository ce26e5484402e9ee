//! The service behind a web server: it answers each request with the length of its body.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// A service that answers until the process ends.
pub struct Service {
    port: u16,
}

impl Service {
    pub fn start() -> Self {
        let listener = crate::fronts::listen();
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || serve(stream));
            }
        });
        Self { port }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// Serves the requests of one connection; ends at the first that cannot be read.
fn serve(stream: TcpStream) -> Option<()> {
    let mut writer = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let text = format!("served {length}\n");
        let size = text.len();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n{text}"
        )
        .ok()?;
    }
}

/// The status and the head of the answer to a request.
pub fn head(address: &str, request: &str) -> Option<(u16, String)> {
    head_over(TcpStream::connect(address).ok()?, request)
}

/// The status of the answer to a client at this address.
pub fn status_from(client: [u8; 4], address: &str, request: &str) -> Option<u16> {
    let to: SocketAddr = address.parse().ok()?;
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    socket.bind(&SocketAddr::from((client, 0)).into()).ok()?;
    socket.connect(&to.into()).ok()?;
    head_over(socket.into(), request).map(|(status, _)| status)
}

fn head_over(mut stream: TcpStream, request: &str) -> Option<(u16, String)> {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, _) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, head.to_owned()))
}

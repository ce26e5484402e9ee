//! The web servers, and how each is started with its shipped configuration, at ports of a test's own.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Process, start};

/// A web server in front of a service.
pub struct Front {
    /// The name of its test.
    pub name: &'static str,
    /// The program.
    pub program: &'static str,
    /// Its files in `deploy/gateways`; the first is its configuration.
    files: &'static [&'static str],
    /// Whether it reaches the gateway by a Unix socket.
    pub by_socket: bool,
    /// What `--trusted-proxies` of its gateway has to be, if it asks through a proxy.
    pub trusted_proxies: Option<&'static str>,
    /// Whether CI installs it.
    pub is_required: bool,
    arguments: &'static [&'static str],
}

/// All web servers with a shipped configuration.
pub const FRONTS: &[Front] = &[
    Front {
        name: "nginx",
        program: "nginx",
        files: &["nginx.conf"],
        by_socket: true,
        trusted_proxies: None,
        is_required: true,
        arguments: &["-p", ".", "-e", "error.log", "-c", "whole.conf"],
    },
    Front {
        name: "caddy",
        program: "caddy",
        files: &["Caddyfile"],
        by_socket: false,
        trusted_proxies: None,
        is_required: true,
        arguments: &["run", "--adapter", "caddyfile", "--config", "Caddyfile"],
    },
    Front {
        name: "haproxy",
        program: "haproxy",
        files: &["haproxy.cfg", "tollgate.lua"],
        by_socket: false,
        trusted_proxies: None,
        is_required: true,
        arguments: &["-f", "haproxy.cfg"],
    },
    Front {
        name: "traefik",
        program: "traefik",
        files: &["traefik.yml", "traefik_routes.yml"],
        by_socket: false,
        trusted_proxies: Some("127.0.0.1/32"),
        is_required: false,
        arguments: &["--configfile=traefik.yml"],
    },
    Front {
        name: "envoy",
        program: "envoy",
        files: &["envoy.yaml"],
        by_socket: false,
        trusted_proxies: None,
        is_required: true,
        arguments: &[
            "--config-path",
            "envoy.yaml",
            "--use-dynamic-base-id",
            "--concurrency",
            "1",
        ],
    },
    ENVOY_RLS,
];

/// Envoy's rate limit filter, which asks over gRPC.
pub const ENVOY_RLS: Front = Front {
    name: "envoy_rls",
    program: "envoy",
    files: &["envoy-rls.yaml"],
    by_socket: false,
    trusted_proxies: None,
    is_required: true,
    arguments: &[
        "--config-path",
        "envoy-rls.yaml",
        "--use-dynamic-base-id",
        "--concurrency",
        "1",
    ],
};

/// The ports in the shipped files: the service's, the web server's, the gateway's for HTTP and for gRPC, and two of
/// Caddy's and Traefik's own.
const SHIPPED: [&str; 6] = ["8081", "8080", "7404", "7405", "8088", "8089"];

/// The ports of one test, and its socket.
pub struct Ports {
    pub web: u16,
    pub gateway: u16,
    pub rls: u16,
    pub socket: PathBuf,
    service: u16,
    more: [u16; 2],
}

/// Listens at a port that contains none of the shipped numbers, since those are replaced one after the other.
pub fn listen() -> TcpListener {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener
            .local_addr()
            .expect("an address")
            .port()
            .to_string();
        if !SHIPPED.iter().any(|shipped| port.contains(shipped)) {
            return listener;
        }
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    listen().local_addr().expect("an address").port()
}

impl Ports {
    /// Ports that were free a moment ago.
    pub fn choose(dir: &Path, service: u16) -> Self {
        // Bind all before releasing one, so that they differ.
        let bound: Vec<TcpListener> = (0..5).map(|_| listen()).collect();
        let port = |index: usize| bound[index].local_addr().expect("an address").port();
        Self {
            web: port(0),
            gateway: port(1),
            rls: port(4),
            socket: dir.join("gateway.sock"),
            service,
            more: [port(2), port(3)],
        }
    }
}

impl Front {
    /// Whether the program is installed.
    pub fn is_there(&self) -> bool {
        let version = match self.program {
            "nginx" | "haproxy" => "-v",
            "envoy" => "--version",
            _ => "version",
        };
        let tried = Command::new(self.program)
            .arg(version)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    }

    /// Starts it with its shipped configuration, in which only ports and the socket are replaced.
    pub fn start(&self, dir: &Path, ports: &Ports) -> Process {
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/gateways");
        for file in self.files {
            let text = std::fs::read_to_string(shipped.join(file)).expect("a shipped file");
            let [more, other] = ports.more;
            let chosen = [
                ports.service,
                ports.web,
                ports.gateway,
                ports.rls,
                more,
                other,
            ];
            let pairs = SHIPPED.iter().zip(chosen);
            let text = pairs.fold(text, |text, (shipped, port)| {
                text.replace(shipped, &port.to_string())
            });
            let socket = ports.socket.display().to_string();
            let text = text.replace("/run/tollgate/gateway.sock", &socket);
            std::fs::write(dir.join(file), text).expect("a directory to write to");
        }
        if self.program == "nginx" {
            // The shipped file is a server block; the rest is the machine's own. One process, since a worker would
            // outlive a killed master.
            let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
            let paths: String = paths
                .iter()
                .map(|path| format!("{path}_temp_path {path};"))
                .collect();
            let whole = format!(
                "daemon off; master_process off; pid nginx.pid; events {{}} http {{ access_log off; {paths} include \
                 nginx.conf; }}\n"
            );
            std::fs::write(dir.join("whole.conf"), whole).expect("a directory to write to");
        }
        start(
            Command::new(self.program)
                .args(self.arguments)
                .current_dir(dir),
        )
    }
}

//! A PostgreSQL server of the test, and logs on it.

use chronicle_core::WorkspaceId;
use chronicle_fleet::{Address, PostgresLog};
use chronicle_testing::postgres::Cluster;
use chronicle_testing::shared::skip;
use tempfile::TempDir;

pub struct Server {
    pub cluster: Cluster,
    _scratch: TempDir,
}

impl Server {
    /// A running server; `None`, and a word about it, where there is no PostgreSQL.
    pub fn start(test: &str) -> Option<Self> {
        let scratch = tempfile::tempdir().unwrap();
        // The user of the cluster must get through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(scratch.path(), open).unwrap();
        let mut cluster = match Cluster::new(&scratch.path().join("data")) {
            Ok(cluster) => cluster,
            Err(why) => {
                skip(test, &why);
                return None;
            }
        };
        cluster.start();
        Some(Self { cluster, _scratch: scratch })
    }

    pub fn url(&self) -> String {
        self.cluster.url()
    }

    pub fn log(&self, workspace: WorkspaceId) -> PostgresLog {
        open(&self.url(), workspace)
    }
}

pub fn open(url: &str, workspace: WorkspaceId) -> PostgresLog {
    PostgresLog::open(&Address::parse(url, None).unwrap(), workspace).unwrap()
}

//! An application on a real file system, and the workspace of its code, with everything declared.

use std::path::Path;
use std::process::Command;

use chronicle_checkpoint::drivers::btrfs::make_data_directory;
use chronicle_core::{Home, InitOptions, Workspace};
use chronicle_testing::application::Application;
use chronicle_testing::mounted::Mounted;
use chronicle_testing::shared::skip;

/// Room for it all, which is taken only once it is written.
const IMAGE: u64 = 4 << 30;

/// In this order they go: the server, the workspace, the file system.
pub struct Scene {
    pub application: Application,
    pub workspace: Workspace,
    _mounted: Mounted,
}

impl Scene {
    /// Everything on a file system of this kind, where this driver can take it.
    pub fn new(test: &str, kind: &str, driver: &str) -> Option<Self> {
        match Self::try_new(kind, driver) {
            Ok(scene) => Some(scene),
            Err(why) => {
                skip(test, &why);
                None
            }
        }
    }

    fn try_new(kind: &str, driver: &str) -> Result<Self, String> {
        let mounted = Mounted::new(kind, IMAGE)?;
        let top = mounted.at();
        let data = top.join("cluster");
        if driver == "btrfs" {
            make_data_directory(&data).map_err(|error| error.to_string())?;
            subvolume(&top.join("files"))?;
        }
        let application = Application::with_data(&top, &data)?;
        let path = application.code.join("chronicle.toml");
        std::fs::write(path, declaration(&application)).expect("a declaration");
        let home = Home::at(&top.join("home"));
        let workspace = Workspace::init(&home, &application.code, &InitOptions::default());
        let mut workspace = workspace.expect("a workspace").0;
        workspace.accept_config().expect("what is declared is meant");
        Ok(Self { application, workspace, _mounted: mounted })
    }
}

fn subvolume(path: &Path) -> Result<(), String> {
    let made = Command::new("btrfs").args(["subvolume", "create"]).arg(path).output();
    made.map(drop).map_err(|error| format!("btrfs: {error}"))
}

fn declaration(application: &Application) -> String {
    let part = |name: &str, kind: &str, place: &Path| {
        format!("[[checkpoint.part]]\nname = \"{name}\"\n{kind} = \"{}\"\n", place.display())
    };
    let parts = [
        part("core", "git", Path::new("core")),
        part("plugin", "git", Path::new("plugin")),
        part("cluster", "postgres", application.cluster.data()),
        part("app", "sqlite", &application.sqlite),
        part("files", "directory", &application.files),
    ];
    format!(
        "[checkpoint]\nfreeze_limit_ms = 60000\n[[checkpoint.command]]\nfreeze = [\"{}\"]\nthaw = [\"{}\"]\n\
         limit_ms = 30000\n{}",
        application.freeze_line(),
        application.thaw_line(),
        parts.concat()
    )
}

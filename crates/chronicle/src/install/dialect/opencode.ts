/** Runs the hook with one event on its stdin. */
const run = (event, cwd) =>
  new Promise((resolve) => {
    const child = spawn(command[0], command.slice(1), { cwd, stdio: ["pipe", "pipe", "pipe"] })
    let stdout = ""
    let stderr = ""
    const late = setTimeout(() => child.kill("SIGKILL"), patienceMs)
    const end = (answer) => (clearTimeout(late), resolve(answer))
    child.stdout.on("data", (data) => (stdout += data))
    child.stderr.on("data", (data) => (stderr += data))
    child.on("close", (code) => end({ code, stdout: stdout.trim(), stderr: stderr.trim() }))
    child.on("error", (error) => {
      const absent = optional && ["ENOENT", "EACCES"].includes(error.code)
      end(absent ? { code: 0, stderr: "" } : { code: null, stderr: String(error) })
    })
    child.stdin.on("error", () => {}) // A hook that ends early need not read everything.
    child.stdin.end(JSON.stringify(event))
  })

export const Chronicle = async ({ client, directory, worktree }) => {
  const queues = new Map()
  const parents = new Map()

  /** The conversation that a sub-agent's session belongs to. */
  const root = (session) => (parents.has(session) ? root(parents.get(session)) : session)

  /** Shows what the hook has to say to the person; there may be no screen. */
  const warn = async (message) => {
    try {
      await client.tui.showToast({ body: { title: "Chronicle", message, variant: "warning" } })
    } catch {}
  }

  /** One event, after all earlier ones of its session. A refusal becomes an error, which blocks. */
  const send = async (n, session, i, o) => {
    const parent = parents.has(session) ? root(session) : undefined
    const call = () => run({ n, i, o, parent, directory, worktree }, directory)
    const turn = (queues.get(session) ?? Promise.resolve()).then(call)
    queues.set(session, turn)
    const { code, stdout, stderr } = await turn
    if (queues.get(session) === turn) queues.delete(session)
    const reason = stderr || `chronicle hook ended with ${code}`
    const blocks = code === 2 || (strict && code !== 0)
    if (blocks && (n === "before" || (n === "chat.message" && code === 2))) throw new Error(reason)
    if (stderr || code !== 0) await warn(reason)
    const said = stdout ? JSON.parse(stdout) : {}
    if (said.warning) await warn(said.warning)
    return said.context
  }

  const told = ["session.created", "session.idle", "session.error", "session.deleted"]
  return {
    "chat.message": async (i, o) => {
      const parts = (o.parts ?? []).filter((part) => part.type === "text")
      const message = { id: o.message?.id }
      const text = await send("chat.message", i.sessionID, i, { message, parts })
      if (!text || !o.parts) return
      const id = `prt_${Date.now().toString(16)}chronicle`
      const { sessionID } = i
      o.parts.push({ id, sessionID, messageID: message.id, type: "text", text, synthetic: true })
    },
    "tool.execute.before": (i, o) => send("before", i.sessionID, i, { args: o.args }),
    "tool.execute.after": async (i, o) => {
      const text = await send("after", i.sessionID, i, { title: o.title })
      if (text && typeof o.output === "string") o.output += `\n\n${text}`
    },
    event: async ({ event }) => {
      if (!told.includes(event.type)) return
      const { sessionID, info } = event.properties ?? {}
      if (info?.id && info.parentID) parents.set(info.id, info.parentID)
      await send("event", sessionID ?? info?.id ?? "", { event }, {})
    },
  }
}

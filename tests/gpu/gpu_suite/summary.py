"""The suite's results as text."""


def figure(value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def summary(results: dict) -> str:
    lines = [
        f"{results['gpu'].get('name', 'unknown GPU')}, driver {results['gpu'].get('driver_version', '?')}, "
        f"{results['program']}, {results['date']}",
    ]
    missing = [name for name, path in results.get("libraries", {}).items() if path is None]
    if missing:
        lines.append(f"The loader does not find {', '.join(missing)}.")
    lines.append("")
    for section in results["sections"]:
        line = f"{section['status']:8} {section['name']:12} {section['seconds']:6.1f} s"
        if section.get("reason"):
            line += f"  {section['reason']}"
        lines.append(line)
        for name, value in section.get("figures", {}).items():
            lines.append(f"{'':22}{name}: {figure(value)}")
    counts = {}
    for section in results["sections"]:
        counts[section["status"]] = counts.get(section["status"], 0) + 1
    lines += ["", ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))]
    if results.get("not_in_archive"):
        lines.append(f"Too large for the archive: {', '.join(results['not_in_archive'])}")
    return "\n".join(lines)

"""Your own data as a task: a file of prompts and answers, a chat template, rewards, tools."""

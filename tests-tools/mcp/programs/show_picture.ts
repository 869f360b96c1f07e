// Shows a picture, which the server says twice: as a picture and as structured content. (filesystem)
return await filesystem.read_media_file({ path: "dot.png" });
